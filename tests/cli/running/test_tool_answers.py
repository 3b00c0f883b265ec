"""Tools of `kafkasniff mcp` without the protocol: each is a command on the named sources."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkasniff.cli.running import tool_answers
from kafkasniff.cli.running.tool_answers import AnswerError, ToolAnswers
from tests.conftest import ROOT

CODECS = str(ROOT / "captures" / "librdkafka-codecs.pcap")
SASL = str(ROOT / "captures" / "java-sasl.pcap")


@pytest.fixture
def answers() -> Iterator[ToolAnswers]:
    with ToolAnswers([CODECS, SASL], [], [], payload=False) as found:
        yield found


@pytest.mark.extended
def test_every_tool_answers(answers: ToolAnswers) -> None:
    assert json.loads(answers.findings())["sources"] == [CODECS, SASL]
    assert json.loads(answers.timing(exchange=9, source=CODECS))["exchange"] == 9
    assert json.loads(answers.follow(key="key-0", count=1, source=CODECS))["records"][0]["key"] == {"length": 5}
    for _ in range(2):
        counts = [
            json.loads(line) for line in answers.sql("SELECT count(*) n, count(value) v FROM records").splitlines()
        ]
        assert counts[0]["n"] > 0
        assert counts[0]["v"] == 0
    assert '"table"' in answers.sql()
    assert json.loads(answers.protocol("Fetch", 13))["version"] == 13


def test_payload_is_shown_only_on_demand(answers: ToolAnswers) -> None:
    asked = ('api == "Produce"', "record.key", 3, CODECS)
    assert "tombstone" not in answers.exchanges(*asked)
    with ToolAnswers([CODECS], [], [], payload=True) as open_answers:
        assert "tombstone" in open_answers.exchanges(*asked)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda one: one.overview(source="/etc/passwd"), "no source is called /etc/passwd"),
        (lambda one: one.overview("apii"), 'unknown field "apii"; did you mean api?'),
        (lambda one: one.exchanges("--output=x"), "column 1"),
        (lambda one: one.exchanges(count=1001), "count is between 1 and 1000"),
        (lambda one: one.protocol("--help"), "no API is called '--help'"),
        (lambda one: one.follow(), "give one of --key"),
    ],
)
def test_errors_are_those_of_the_command(answers: ToolAnswers, ask: object, message: str) -> None:
    with pytest.raises(AnswerError) as error:
        ask(answers)  # type: ignore[operator]
    assert message in str(error.value)


@pytest.mark.extended
def test_a_query_reads_no_files(answers: ToolAnswers, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    answers._sources = (CODECS,)
    for query in (f"SELECT * FROM '{secret}'", f"COPY exchanges TO '{tmp_path / 'out'}'", str(secret)):
        with pytest.raises(AnswerError):
            answers.sql(query)
    assert list(tmp_path.iterdir()) == [secret]


def test_long_and_late_answers_are_cut(answers: ToolAnswers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_answers, "MAX_ANSWER", 100)
    with pytest.raises(AnswerError, match="ask for fewer rows"):
        answers.protocol()
    monkeypatch.setattr(tool_answers, "ANSWER_SECONDS", 0.001)
    with pytest.raises(AnswerError, match="no answer within"):
        answers.protocol("Fetch")
