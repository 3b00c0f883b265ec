"""One self-contained page about a capture or an export, for browsers, printing and sharing (docs/report.md).

traffic.py        exchanges, errors and latencies by time span
ladder.py         some exchanges of each connection, and their steps
contents.py       all of it together with the overview and the findings: rows in, `Contents` out
answer_tables.py  tables of answers with their cells, for the page as well as for screens
charts.py         the charts
svg.py            chart specifications to SVG
page.py           the page; page/ has its template, style and script
"""
