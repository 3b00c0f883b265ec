"""The manual page and the help of every command."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Callable

import click
import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.cli.main import command_line
from kafkasniff.cli.manual import EXIT_CODES, manual
from tests.cli.test_completion import commands
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "kafkasniff.1"


def helped(command: click.Command, name: str, width: int) -> str:
    whole = click.Context(command_line, info_name="kafkasniff", **command_line.context_settings)
    return command.get_help(click.Context(command, info_name=name, parent=whole, terminal_width=width))


def test_every_help_reads_well_in_80_columns() -> None:
    for name, command in [("", command_line), *commands()]:
        lines = helped(command, name, 80).splitlines()
        assert max(map(len, lines)) <= 80, name
        # A list of choices that takes the whole line would leave its sentence in a narrow column.
        assert all(re.match(r" {,34}\S", line) for line in lines if line.strip()), name
        text = " ".join(helped(command, name, 10_000).split())
        assert command.help, name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (name, parameter.name)
                assert parameter.opts[0] in text


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == manual(), "python -m kafkasniff.cli.manual > docs/kafkasniff.1"


def test_it_is_in_the_wheel_where_man_looks() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["shared-data"] == {"docs/kafkasniff.1": "share/man/man1/kafkasniff.1"}


def test_it_has_the_exit_codes() -> None:
    told = {int(code) for codes, _ in EXIT_CODES for code in codes.split(", ")}
    assert told == {int(code) for code in Exit}


def formatted(page: str, program: str, *options: str) -> str:
    done = subprocess.run(
        [program, *options], input=page, env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout)


@pytest.fixture(scope="module")
def shown(require_tool: Callable[[str], str]) -> str:
    return formatted(manual(), require_tool("groff"), "-ww", "-man", "-Tutf8", "-rLL=80n")


def test_it_is_formatted_without_warnings(shown: str) -> None:
    headings = re.findall(r"^[A-Z][A-Z ]+$", shown, re.M)
    assert headings == [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "COMMANDS",
        "EXIT STATUS",
        "ENVIRONMENT",
        "EXAMPLES",
        "SEE ALSO",
    ]
    assert max(map(len, shown.splitlines())) <= 84


def test_it_says_what_the_help_says(shown: str) -> None:
    words = " ".join(shown.split())
    for name, command in commands():
        if " " in name:
            continue
        assert f"kafkasniff {name} " in words
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert " ".join((parameter.help or "").split()).rstrip(".") in words, (name, parameter.name)
                assert all(option in words for option in parameter.opts)


def test_man_shows_it(require_tool: Callable[[str], str]) -> None:
    told = formatted(manual(), require_tool("man"), "--warnings", "-l", "-")
    assert 'eval "$(kafkasniff completion bash)" in ~/.bashrc' in told
    assert "[1<=x<=65535]" in told


@pytest.mark.parametrize("text", [".start", "'start", "back\\slash \\fB", "-- ~^`", "µ → …"])
def test_nothing_is_taken_for_a_command(text: str, require_tool: Callable[[str], str]) -> None:
    from kafkasniff.cli.manual import _literal

    told = formatted(f".TH X 1\n.PP\n{_literal(text)}\n", require_tool("groff"), "-ww", "-man", "-Tutf8")
    assert text in told
