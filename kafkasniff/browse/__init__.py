"""The explorer: exchanges of captures and exports, as a list, in full and in numbers.

`index.py` has all rows in little memory (`packed_columns.py`). `reading.py` and `export_reading.py` fill it.
`body_view.py` shows an exchange and its records, `following.py` what follows it.
`commands.py` runs other commands for reports and files, `filter_texts.py` writes filters. Only `screen/` draws, with
Textual; `serving.py` shows it in browsers.
"""
