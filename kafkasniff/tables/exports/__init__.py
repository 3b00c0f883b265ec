"""Exports: captures to Parquet tables, in two steps.

    options.py    what an export is made with
    staging.py    step 1: events to staged rows, and the names that the run learns
    staged.py     the files that staged rows wait in, and their final order
    finalise.py   step 2: staged files to Parquet files, and the state for the next run
    captures.py   which captures an export holds
    manifest.py   which files an export holds
    target.py     the folder or object store: commit, what a killed run left
    shard.py      step 1 over captures, in one process or several
    run.py        both steps over captures
    live.py       both steps over a live capture, committed every few minutes

Names of topics and brokers may be learnt anywhere in a run and are needed in all rows. So rows are staged, and finished
once all names are known. Captures are read once.
"""
