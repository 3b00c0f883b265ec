"""`kafkasniff help`, and the manual pages: as the help of the commands, readable by groff and man."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from kafkasniff.cli.commands.help import TOPICS, help_command
from kafkasniff.cli.main import command_line
from kafkasniff.cli.manual import _literal, pages, write
from kafkasniff.filters.expression import parse_filter
from kafkasniff.filters.fields import FIELDS
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT


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


FOLDER = ROOT / "docs" / "man"


def test_the_pages_are_up_to_date() -> None:
    assert {file.name: file.read_text() for file in FOLDER.iterdir()} == pages(), "make manual"


def test_pages_of_removed_commands_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "kafkasniff-gone.1").touch()
    (tmp_path / "other.1").touch()
    write(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {*pages(), "other.1"}


def test_pages_are_in_the_wheel_where_man_finds_them() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["shared-data"]["docs/man"] == "share/man/man1"


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


@pytest.mark.extended
def test_pages_are_formatted_without_warnings(shown: dict[str, str]) -> None:
    assert max(len(line) for page in shown.values() for line in page.splitlines()) <= 84


@pytest.mark.extended
@pytest.mark.parametrize("text", [".start", "'start", "back\\slash \\fB", "-- ~^`", "µ → …"])
def test_no_line_is_mistaken_for_a_roff_command(text: str, require_tool: Callable[[str], str]) -> None:
    reported = formatted(f".TH X 1\n.PP\n{_literal(text)}\n", require_tool("groff"), "-ww", "-man", "-Tutf8")
    assert text in reported
