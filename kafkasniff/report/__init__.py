"""One self-contained page about a capture or an export, for browsers, printing and sharing (docs/report.md).

spans.py     time spans whose width is known only at the end
traffic.py   exchanges, errors and latencies by span
ladder.py    some exchanges of each connection
contents.py  all of it together with the overview and the findings: rows in, `Contents` out
answer_tables.py  tables of answers, for the page as well as for screens
cells.py     what those show
steps.py     exchanges of a connection as steps
charts.py    the charts; drawing.py: their building blocks; latency_charts.py: those of latencies
svg.py       chart specifications to SVG
page.py      the page; page/ has its template, style and script
"""
