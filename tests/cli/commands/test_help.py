"""`kafkasniff help`."""

from __future__ import annotations

import re

import click
import pytest

from kafkasniff.cli.commands.help import TOPICS, help_command
from kafkasniff.cli.main import command_line
from kafkasniff.filters.expression import parse_filter
from kafkasniff.filters.fields import FIELDS
from tests.cli.console import kafkasniff as command


def _lines(*words: str) -> list[str]:
    done = command("help", *words)
    assert (done.code, done.err) == (0, "")
    return done.out.decode().splitlines()


def test_the_list_names_all_topics() -> None:
    text = "\n".join(_lines())
    assert text.startswith("Usage: kafkasniff ")
    assert all(f"\n  {name} " in text for name in TOPICS)


def test_a_section_of_a_command() -> None:
    """By the beginning of its title; its lines are those of the whole help."""
    whole = _lines("live")
    for words, title in ((("metr",), "Metrics"), (("secrets", "and"), "Secrets and payload"), (("OUTPUT",), "Output")):
        lines = _lines("live", *words)
        assert lines[0] == f"{title}:"
        at = whole.index(lines[0])
        assert whole[at : at + len(lines)] == lines
        assert whole[at + len(lines)] == ""
    assert _lines("analyze", "churn", "answer")[1].startswith("  --every DURATION")
    assert _lines("analyze", "churn")[0] == "Usage: kafkasniff analyze churn [OPTIONS] CAPTURE...|DIR"


def test_filters_name_every_field_and_their_examples_are_valid() -> None:
    text = "\n".join(_lines("filters"))
    assert FIELDS.keys() <= set(re.findall(r"[a-z_]+", text))
    examples = re.findall(r"--filter '(.+)'", text)
    assert len(examples) >= 4
    for one in examples:
        parse_filter(one)


@pytest.mark.parametrize("width", [60, 80])
def test_topics_fit_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    # Examples are commands to paste.
    for name in TOPICS:
        assert [line for line in _lines(name) if len(line) > width and "--filter '" not in line] == [], name


def test_completion() -> None:
    parent = click.Context(command_line, info_name="kafkasniff")
    argument, _ = [one for one in help_command.params if isinstance(one, click.Argument)]
    found = argument.type.shell_complete(click.Context(help_command, parent=parent), argument, "e")
    assert [item.value for item in found] == ["export", "exit-codes"]
