"""A run that goes on, watched: what happens now (the view `--top`) and what was counted so far (`--metrics`).

Both take the events that a sink takes, and neither does any I/O: `cli/terminal.py` and `cli/scrapes.py` do.
"""
