"""Decoding in several processes, with the output of one: not a byte of it depends on how many they are.

Each process (`shard.py`) reads the packets of its own connections, which are dealt to it (`dealer.py`). What crosses
connections is settled in one place (`coordinator.py`), window by window; a window is a part of the packets in capture
order, the same parts that one process would take:

1. Each shard takes its packets of the window, and tells what it found: the places of connections and events in
   capture order, what messages tell of topics, which endpoints speak Kafka, what happens to fetch sessions (`Found`).
   Of entries only those are read that may concern other connections (`finding.py`).
2. The coordinator puts all that in order and answers: the numbers of the connections and exchanges that begin in the
   window, what other shards' messages tell and when, and what the sessions hold (`Given`).
3. Each shard makes its events of it as one process would, adds names, selects, renders, and hands on lines with the
   places of their events; they are put in order (`interleave.py`) and written.

Shards are a window or two ahead with the first step, so that nobody waits for answers. Nothing in these modules knows
of processes; `crew.py` has them, and `areas.py` the memory that they share: one process reads the captures, and packets
and lines are copied once.
"""
