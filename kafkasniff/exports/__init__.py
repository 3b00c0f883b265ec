"""Exports: captures to Parquet tables, in two steps.

    options.py    what an export is made with
    stager.py     step 1: events to staged rows; what the run tells of names
    staging.py    step 1 for whoever has packets
    staged.py     the files that staged rows wait in, for a date and a table
    merge.py      staged rows in their final order, a window at a time
    finalise.py   step 2: staged files to Parquet files
    finish.py     step 2 of a run: its tables, and the state for the next
    captures.py   which captures an export holds
    folder.py     the folder: manifest, commit, what a killed run left
    carried.py    what a run hands on to the next
    shard.py      step 1 over captures, in one process
    workers.py    step 1 in several processes, each for a share of the connections
    run.py        the whole
    live.py       the whole, for packets as they come, committed every few minutes
    background.py a call in a process of its own, while packets come

Names of topics and brokers are told anywhere in a run, and needed everywhere; so rows are staged first, and finished
when all is known. Captures are read once.
"""
