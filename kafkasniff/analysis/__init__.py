"""Questions about a cluster's traffic, answered from the tables; each a mergeable accumulator (see `accumulator`)."""

from kafkasniff.analysis.accumulator import Accumulator, Parameters, Reading
from kafkasniff.analysis.parameters import make_parameters, parameters_of
from kafkasniff.analysis.questions import find_question, question_names, questions

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
