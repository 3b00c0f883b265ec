"""A first overview of a capture or an export, from one pass over the rows.

section.py   what the parts share
apis.py      APIs
peers.py     brokers and clients
topics.py    topics
groups.py    groups
encrypted.py TLS connections without keys
faults.py    connections, their bytes, and problems
answer.py    the answer, field by field
overview.py  all parts together, and the questions that they include: latency, errors, rebalances
"""

from kafkasniff.analysis.overview.answer import OverviewAnswer
from kafkasniff.analysis.overview.overview import Overview

__all__ = ["Overview", "OverviewAnswer"]
