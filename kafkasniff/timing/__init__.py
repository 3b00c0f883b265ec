"""Where the time of exchanges was spent: at brokers, clients, or in the network between them (docs/timing.md)."""

from kafkasniff.kafka.connection.waits import Wait, answers_at_once, wait_of
from kafkasniff.timing.exchanges import ExchangeTimes, Timed
from kafkasniff.timing.link import Link, LinkHalf
from kafkasniff.timing.phases import PARTS, Marks, TimeParts, split
from kafkasniff.timing.trouble import Trouble
from kafkasniff.timing.watch import LinkWatch

__all__ = [
    "PARTS",
    "ExchangeTimes",
    "Link",
    "LinkHalf",
    "LinkWatch",
    "Marks",
    "TimeParts",
    "Timed",
    "Trouble",
    "Wait",
    "answers_at_once",
    "split",
    "wait_of",
]
