"""A client program that stays: acts go in by stdin, reports come out."""

import sys

import pytest

from captures.record.acting import ActingClient
from captures.record.distribution import SetupError

PROGRAM = """
import json, sys
print(json.dumps({"kind": "client"}), flush=True)
for line in sys.stdin:
    name, *words = line.split()
    if name == "fail":
        sys.exit("this went wrong")
    print(json.dumps({"kind": "did", "name": name, "words": words}), flush=True)
    print(json.dumps({"kind": "end_of_act"}), flush=True)
"""


def program():
    return [sys.executable, "-c", PROGRAM]


def test_each_act_returns_its_own_reports(tmp_path):
    with ActingClient(program(), tmp_path, {}) as client:
        first = client.act("one", "a", "b")
        second = client.act("two")
    assert [report["kind"] for report in first] == ["client", "did", "end_of_act"]
    assert second == [{"kind": "did", "name": "two", "words": []}, {"kind": "end_of_act"}]


def test_a_failed_act_shows_the_programs_output(tmp_path):
    with (
        pytest.raises(SetupError, match="did not get through fail: this went wrong"),
        ActingClient(program(), tmp_path, {}) as client,
    ):
        client.act("fail")


def test_a_program_that_fails_is_reported(tmp_path):
    with (
        pytest.raises(SetupError, match="ended with 3"),
        ActingClient([sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(3)"], tmp_path, {}),
    ):
        pass
