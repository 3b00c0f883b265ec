"""A first overview of a capture or an export, from one pass over the rows.

counts.py    what the parts share; APIs, brokers and clients; connections and their bytes, TLS without keys, problems
topics.py    topics and groups
answer.py    the answer, field by field
overview.py  all parts together, and the questions that they include: latency, errors, rebalances
"""

from kafkasniff.analysis.overview.answer import OverviewAnswer
from kafkasniff.analysis.overview.overview import Overview

__all__ = ["Overview", "OverviewAnswer"]
