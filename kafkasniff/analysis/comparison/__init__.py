"""Compares two sets of exchanges, as before and after a change: significant differences that are large enough.

side.py        the counts of one side, by time spans
inference.py   estimates and tests between spans, and when numbers differ
compare.py     both sides in, the answer out
answer.py      the answer, field by field, without slow imports
"""
