"""Questions about a cluster's traffic, answered from the tables; each a mergeable accumulator (see `accumulator`).

What needs pyarrow is imported when it is asked for: who wants to know which questions there are does not wait for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.analysis.questions import find_question, question_names, questions

if TYPE_CHECKING:
    from kafkasniff.analysis.accumulator import Accumulator, Parameters, Reading
    from kafkasniff.analysis.parameters import make_parameters, parameters_of

__all__ = [
    "Accumulator",
    "Parameters",
    "Reading",
    "find_question",
    "make_parameters",
    "parameters_of",
    "question_names",
    "questions",
]

_HOMES: Final = {
    "accumulator": ("Accumulator", "Parameters", "Reading"),
    "parameters": ("make_parameters", "parameters_of"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
