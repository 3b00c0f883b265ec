"""The manual pages and the help of every command."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.cli.exit_codes import EXIT_CODES
from kafkasniff.cli.main import command_line
from kafkasniff.cli.manual import pages, write
from tests.cli.commands.test_completion import commands
from tests.conftest import ROOT

FOLDER = ROOT / "docs" / "man"


def helped(command: click.Command, name: str, width: int) -> str:
    whole = click.Context(command_line, info_name="kafkasniff", **command_line.context_settings)
    return command.get_help(click.Context(command, info_name=name, parent=whole, terminal_width=width))


def test_every_help_is_readable_in_80_columns() -> None:
    for name, command in [("", command_line), *commands()]:
        lines = helped(command, name, 80).splitlines()
        assert max(map(len, lines)) <= 80, name
        # A list of choices that takes the whole line would leave a narrow column for the description.
        assert all(re.match(r" {,34}\S", line) for line in lines if line.strip()), name
        text = " ".join(helped(command, name, 10_000).split())
        assert command.help, name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (name, parameter.name)
                assert parameter.opts[0] in text


def test_the_pages_are_up_to_date() -> None:
    assert {file.name: file.read_text() for file in FOLDER.iterdir()} == pages(), "make manual"


def test_each_command_has_a_page() -> None:
    expected = {f"kafkasniff-{name}.1" for name, _ in commands() if " " not in name} | {"kafkasniff.1"}
    assert set(pages()) == expected


def test_pages_of_removed_commands_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "kafkasniff-gone.1").touch()
    (tmp_path / "other.1").touch()
    write(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {*pages(), "other.1"}


def test_pages_are_in_the_wheel_where_man_finds_them() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["shared-data"]["docs/man"] == "share/man/man1"


def test_exit_codes_are_listed() -> None:
    reported = {int(code) for codes, _ in EXIT_CODES for code in codes.split(", ")}
    assert reported == {int(code) for code in Exit}


def formatted(page: str, program: str, *options: str) -> str:
    done = subprocess.run(
        [program, *options], input=page, env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout)


@pytest.fixture(scope="module")
def shown(require_tool: Callable[[str], str]) -> dict[str, str]:
    groff = require_tool("groff")
    return {name: formatted(page, groff, "-ww", "-man", "-Tutf8", "-rLL=80n") for name, page in pages().items()}


def headings(page: str) -> list[str]:
    return re.findall(r"^[A-Z][A-Z ]+$", page, re.M)


def test_pages_are_formatted_without_warnings(shown: dict[str, str]) -> None:
    assert headings(shown["kafkasniff.1"]) == [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "COMMANDS",
        "EXIT STATUS",
        "ENVIRONMENT",
        "EXAMPLES",
        "SEE ALSO",
    ]
    assert headings(shown["kafkasniff-decode.1"]) == [
        *("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "SEE ALSO")
    ]
    assert "COMMANDS" in headings(shown["kafkasniff-analyze.1"])
    assert max(len(line) for page in shown.values() for line in page.splitlines()) <= 84


def test_pages_agree_with_the_help(shown: dict[str, str]) -> None:
    for name, command in commands():
        if " " in name:
            continue
        words = " ".join(shown[f"kafkasniff-{name}.1"].split())
        assert f"kafkasniff {name} " in words
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert " ".join((parameter.help or "").split()).rstrip(".") in words, (name, parameter.name)
                assert all(option in words for option in parameter.opts)


def test_man_shows_them(require_tool: Callable[[str], str]) -> None:
    for name, page in pages().items():
        reported = formatted(page, require_tool("man"), "--warnings", "-l", "-")
        if name == "kafkasniff-completion.1":
            assert 'eval "$(kafkasniff completion bash)" in ~/.bashrc' in reported
        if name == "kafkasniff-decode.1":
            assert "[1<=x<=65535]" in reported


@pytest.mark.parametrize("text", [".start", "'start", "back\\slash \\fB", "-- ~^`", "µ → …"])
def test_no_line_is_mistaken_for_a_roff_command(text: str, require_tool: Callable[[str], str]) -> None:
    from kafkasniff.cli.manual import _literal

    reported = formatted(f".TH X 1\n.PP\n{_literal(text)}\n", require_tool("groff"), "-ww", "-man", "-Tutf8")
    assert text in reported
