"""Where the time of exchanges was spent: at brokers, clients, or in the network between them (docs/timing.md)."""

from kafkasniff.kafka.connection.waits import Wait, answers_at_once, wait_of
from kafkasniff.timing.exchanges import ExchangeTimes, Timed, TimedColumns
from kafkasniff.timing.network import ExchangeNetwork, Trouble
from kafkasniff.timing.phases import PARTS, UNLIMITED, Ints, Marks, PartColumns, TimeParts, Waits, split
from kafkasniff.timing.seen import SUBJECTS

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
