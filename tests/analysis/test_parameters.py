from __future__ import annotations

import pytest

from kafkasniff.analysis import find_question, make_parameters, parameters_of, question_names, questions
from kafkasniff.errors import UsageError


def test_every_question_and_parameter_has_a_description() -> None:
    for name, question in zip(question_names(), questions(), strict=True):
        assert question.name == name
        assert question.summary.endswith(".")
        assert question.__doc__
        for parameter in parameters_of(question):
            assert parameter.help, (name, parameter.name)
            # The default, written as a person would, means the default.
            if parameter.default_text is not None and parameter.kind != "flag":
                made = make_parameters(question, {parameter.name: parameter.default_text})
                assert made == question.parameters_type()


def test_values_as_people_write_them() -> None:
    latency = find_question("latency")
    made = make_parameters(latency, {"by": ["api,broker", "client"], "every": "1.5s"})
    assert made == latency.parameters_type(by=("api", "broker", "client"), every=1_500_000_000)
    assert make_parameters(latency, {"every": 5, "by": None}) == latency.parameters_type(every=5)
    assert make_parameters(find_question("slow_brokers"), {"factor": "3", "at_least": "7"}).at_least == 7


@pytest.mark.parametrize(
    ("question", "given", "expected"),
    [
        ("latency", {"bye": "api"}, "no parameter 'bye'"),
        ("racks", {"x": 1}, "it has none"),
        ("latency", {"by": "colour"}, "not one of api"),
        ("latency", {"every": "soon"}, "not a duration"),
        ("latency", {"every": -1}, "every"),
        ("talkers", {"top": "many"}, "not a number"),
        ("talkers", {"top": 1.5}, "top"),
        ("versions", {"all": "yes"}, "all"),
        ("batching", {"direction": "up"}, "not one of produce, fetch"),
    ],
)
def test_invalid_values(question: str, given: dict[str, object], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        make_parameters(find_question(question), given)


@pytest.mark.parametrize(("name", "suggested"), [("lateny", "latency"), ("fetch", "fetch-efficiency"), ("lags", "lag")])
def test_an_unknown_question(name: str, suggested: str) -> None:
    with pytest.raises(UsageError, match=rf"{suggested}\?"):
        find_question(name)
