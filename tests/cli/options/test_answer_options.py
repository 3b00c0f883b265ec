"""Options of answers, and one meaning for each name in all commands."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

import click
import pytest

from kafkasniff.analysis import detectors
from kafkasniff.cli.main import command_line
from kafkasniff.cli.options.answer_options import SEVERITIES, fails

MUSCLE_MEMORY: Final = {
    "-C": "--rotate-size",
    "-D": "--list-interfaces",
    "-G": "--rotate-every",
    "-W": "--rotate-files",
    "-Y": "--filter",
    "-c": "--count",
    "-i": "--interface",
    "-o": "--output",
    "-q": "--quiet",
    "-v": "--verbose",
    "-w": "--write",
    "-s": "--snaplen",
    "-x": "--hex",
}
"""All short options, as in tcpdump and tshark, each with the long one that it is in every command."""
OF_A_CAPTURE: Final = {("-w", "--write-matching")}
"""`decode` writes packets of what it reads, without secrets; `live` writes them as they are."""
DIFFERENT: Final = {
    ("live", "--top"): "the view that is named after top(1), not a number of rows",
    ("decode-bytes", "--api"): "the API of the bytes, not a filter",
    ("decode-bytes", "--version"): "the version of the bytes",
    ("", "--version"): "prints a version",
    ("analyze talkers", "--top"): "a parameter of the question: it counts alike, but is parsed by the question",
}


def commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for one in command.list_commands(context):
            found = command.get_command(context, one)
            assert found is not None
            yield from commands(found, f"{name} {one}".strip())


def options() -> Iterator[tuple[str, click.Option]]:
    for name, command in commands(command_line):
        for one in command.params:
            if isinstance(one, click.Option):
                yield name, one


def meaning(option: click.Option) -> tuple[Any, ...]:
    """What a user relies on: the names, whether it takes a value, and whether it may be repeated."""
    return (sorted(option.opts), option.is_flag, option.multiple, option.count, isinstance(option.type, click.IntRange))


def test_short_options_mean_the_same_everywhere() -> None:
    found = {(short, long) for _, one in options() for short in one.opts if len(short) == 2 for long in one.opts}
    assert {(short, long) for short, long in found if long.startswith("--")} == {*MUSCLE_MEMORY.items(), *OF_A_CAPTURE}


@pytest.mark.parametrize("name", sorted({long for _, one in options() for long in one.opts if long.startswith("--")}))
def test_a_name_has_one_meaning(name: str) -> None:
    found = {
        str(meaning(one)): command
        for command, one in options()
        if name in one.opts and (command, name) not in DIFFERENT
    }
    assert len(found) <= 1, found


def test_exceptions_are_needed() -> None:
    """Each has the same name as an option with another meaning."""
    known = {(command, name): meaning(one) for command, one in options() for name in one.opts}
    for command, name in DIFFERENT:
        others = [found for (other, same), found in known.items() if same == name and other != command]
        assert any(found != known[command, name] for found in others)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_findings_at_least_as_severe_fail(severity: Any) -> None:
    finding: Any = SimpleNamespace(severity=severity)
    failing = SEVERITIES[SEVERITIES.index(severity) :]
    assert [one for one in SEVERITIES if fails([finding], one)] == list(failing)
    assert not fails([finding], "never")
    assert not fails([], "note")


def test_severities_are_those_of_detectors() -> None:
    assert SEVERITIES == detectors.SEVERITIES
    shared = [one for _, one in options() if "--fail-on" in one.opts]
    assert [one.type.choices for one in shared if isinstance(one.type, click.Choice)] == [(*SEVERITIES, "never")] * 2
