"""The way of a record: from its producer to its broker, and from there to every consumer, up to the commit beyond it.

Everything comes from rows of the tables `records` and `exchanges`. What they do not show is named, never assumed.
"""

from kafkasniff.analysis.follow.following import READINGS, WaysFound, follow, nothing_found
from kafkasniff.analysis.follow.way import Consumer, RecordWay, Wanted, WayStep

__all__ = ["READINGS", "Consumer", "RecordWay", "Wanted", "WayStep", "WaysFound", "follow", "nothing_found"]
