"""Monitoring of a running capture: the present (the view `--top`) and counts so far (`--metrics`).

Both take the same events as a sink, and neither does any I/O: `cli/running/top.py` and `cli/running/scrapes.py`
do.
"""
