"""The questions by name; each module is imported only when its question is needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.errors import UsageError
from kafkasniff.text.printable import suggestion

if TYPE_CHECKING:
    from kafkasniff.analysis.accumulator import Question

__all__ = ["find_question", "question_names", "questions"]

# Name → module and class.
_QUESTIONS: Final = {
    "latency": ("load", "Latency"),
    "errors": ("errors", "Errors"),
    "talkers": ("load", "Talkers"),
    "batching": ("data", "Batching"),
    "record-sizes": ("data", "RecordSizes"),
    "fetch-efficiency": ("data", "FetchEfficiency"),
    "rebalances": ("rebalances", "Rebalances"),
    "metadata-storms": ("outliers", "MetadataStorms"),
    "slow-brokers": ("outliers", "SlowBrokers"),
    "retries": ("retries", "Retries"),
    "throttling": ("load", "Throttling"),
    "outstanding": ("load", "Outstanding"),
    "lag": ("delivery", "Lag"),
    "versions": ("versions", "ClientVersions"),
    "churn": ("outliers", "Churn"),
    "topic": ("data", "Topic"),
    "topics": ("data", "TopicUse"),
    "transactions": ("delivery", "Transactions"),
    "flight": ("delivery", "Flight"),
    "share": ("delivery", "Share"),
    "racks": ("delivery", "Racks"),
}


def question_names() -> tuple[str, ...]:
    """All names, in the order of listings."""
    return tuple(_QUESTIONS)


def find_question(name: str) -> type[Question[Any]]:
    """The question of a name. Raises UsageError, with a suggestion, if there is none."""
    wanted = name.replace("_", "-").lower()
    if wanted not in _QUESTIONS:
        hint = suggestion(wanted, _QUESTIONS, "`kafkasniff analyze --list` lists them")
        raise UsageError(f"no question is called {name!r}{hint}")
    module, attribute = _QUESTIONS[wanted]
    found: type[Question[Any]] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return found


def questions() -> list[type[Question[Any]]]:
    """All questions, in the order of listings."""
    return [find_question(name) for name in _QUESTIONS]
