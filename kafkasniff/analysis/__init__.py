"""Questions about a cluster's traffic, answered from the tables: queries (`sql`) and mergeable accumulators.

Modules that need pyarrow are imported lazily, so that listing the questions is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.analysis.questions import find_question, question_names, questions

if TYPE_CHECKING:
    from kafkasniff.analysis.accumulator import Accumulator, Parameters, Question, TableReading
    from kafkasniff.analysis.parameters import make_parameters, parameters_of

__all__ = [
    "Accumulator",
    "Parameters",
    "Question",
    "TableReading",
    "find_question",
    "make_parameters",
    "parameters_of",
    "question_names",
    "questions",
]

_HOMES: Final = {
    "accumulator": ("Accumulator", "Parameters", "Question", "TableReading"),
    "parameters": ("make_parameters", "parameters_of"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
