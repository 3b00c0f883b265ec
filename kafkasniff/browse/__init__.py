"""The explorer of `kafkasniff browse`: a list of exchanges, their bodies and bytes. Only `screen/` imports Textual.

index.py        columns of all exchanges, bounded
row_facts.py    what the list shows of an exchange, from objects or from columns of the kernel
reading.py      fills the index; reads the packets of one exchange again to decode it
body_view.py    bodies as nodes of a tree
byte_rows.py    bytes as rows, and which of them show a field of the tree
record_view.py  records as rows of a table, and one as a whole
commands.py     commands that show or write the same, and their run as a process
serving.py      the explorer in browsers
copying.py      an exchange in forms to copy
screen/         the widgets
"""
