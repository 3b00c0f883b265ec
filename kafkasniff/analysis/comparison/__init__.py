"""Compares two sets of exchanges, as before and after a change: significant differences that are large enough.

spans.py       counts by time spans, for captures of unknown duration
side.py        the counts of one side
inference.py   estimates and tests between spans
family.py      when numbers differ
latencies.py   latencies; peers.py: clients and brokers; compare.py: all else, and the whole
answer.py      the answer, field by field, without slow imports
"""
