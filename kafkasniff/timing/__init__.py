"""Where the time of exchanges was spent: at brokers, clients, or in the network between them (docs/timing.md)."""

from kafkasniff.kafka.connection.waits import Wait, answers_at_once, wait_of
from kafkasniff.timing.exchanges import ExchangeTimes, Timed
from kafkasniff.timing.network import ExchangeNetwork, Trouble
from kafkasniff.timing.phases import PARTS, Marks, TimeParts, split

__all__ = [
    "PARTS",
    "ExchangeNetwork",
    "ExchangeTimes",
    "Marks",
    "TimeParts",
    "Timed",
    "Trouble",
    "Wait",
    "answers_at_once",
    "split",
    "wait_of",
]
