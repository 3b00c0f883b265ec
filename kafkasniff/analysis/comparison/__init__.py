"""Two sets of exchanges, as before and after a change: what differs by more than chance, and by enough to matter.

spans.py       counts by spans of time, without knowing beforehand how long a capture is
side.py        what is counted of one side
inference.py   estimates and tests between spans
family.py      when numbers differ
latencies.py   latencies; peers.py: clients and brokers; compare.py: all else, and the whole
answer.py      the answer, field by field, without anything that takes time to import
"""
