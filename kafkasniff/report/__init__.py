"""One page of all that a capture or an export shows, to look at in a browser, to print, to hand on (docs/report.md).

spans.py     spans of time of a width that is known at the end only
traffic.py   exchanges, errors and latencies by span
ladder.py    some exchanges of each connection
contents.py  all of it together with the overview and the findings: rows in, `Contents` out
tables.py    lists as cells of text
steps.py     exchanges of a connection as steps
charts.py    the charts that there are; drawing.py: what they are made of; latency_charts.py: those of latencies
svg.py       specifications of charts to SVG
page.py      the page; page/ has its template, style and script
"""
