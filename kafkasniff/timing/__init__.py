"""Where the time of exchanges was spent: at brokers, clients, or in the network between them (docs/timing.md)."""

from kafkasniff.kafka.connection.waits import Wait, answers_at_once, wait_of
from kafkasniff.timing.exchanges import ExchangeNetwork, ExchangeTimes, Timed, TimedColumns, Trouble
from kafkasniff.timing.phases import PARTS, SUBJECTS, UNLIMITED, Ints, Marks, PartColumns, TimeParts, Waits, split

__all__ = [
    "PARTS",
    "SUBJECTS",
    "UNLIMITED",
    "ExchangeNetwork",
    "ExchangeTimes",
    "Ints",
    "Marks",
    "PartColumns",
    "TimeParts",
    "Timed",
    "TimedColumns",
    "Trouble",
    "Wait",
    "Waits",
    "answers_at_once",
    "split",
    "wait_of",
]
