"""The manual pages: as the help of the commands, and readable by groff and man."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkasniff.cli.manual import _literal, pages, write
from tests.cli.options.test_all_options import COMMANDS, OPTIONS
from tests.conftest import ROOT

FOLDER = ROOT / "docs" / "man"


def test_the_pages_are_up_to_date() -> None:
    assert {file.name: file.read_text() for file in FOLDER.iterdir()} == pages(), "make manual"


def test_each_command_has_a_page() -> None:
    expected = {f"kafkasniff-{name}.1" for name in COMMANDS if name and " " not in name} | {"kafkasniff.1"}
    assert set(pages()) == expected


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


def headings(page: str) -> list[str]:
    return re.findall(r"^[A-Z][A-Z ]+$", page, re.M)


@pytest.mark.extended
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


@pytest.mark.extended
def test_pages_agree_with_the_help(shown: dict[str, str]) -> None:
    for name in COMMANDS:
        if not name or " " in name:
            continue
        words = " ".join(shown[f"kafkasniff-{name}.1"].split())
        assert f"kafkasniff {name} " in words
        for option in OPTIONS[name]:
            assert " ".join((option.help or "").split()).rstrip(".") in words, (name, option.name)
            assert all(one in words for one in option.opts)


@pytest.mark.extended
def test_man_shows_them(require_tool: Callable[[str], str]) -> None:
    for name, page in pages().items():
        reported = formatted(page, require_tool("man"), "--warnings", "-l", "-")
        if name == "kafkasniff-completion.1":
            assert 'eval "$(kafkasniff completion bash)" in ~/.bashrc' in reported
        if name == "kafkasniff-decode.1":
            assert "[1<=x<=65535]" in reported


@pytest.mark.extended
@pytest.mark.parametrize("text", [".start", "'start", "back\\slash \\fB", "-- ~^`", "µ → …"])
def test_no_line_is_mistaken_for_a_roff_command(text: str, require_tool: Callable[[str], str]) -> None:
    reported = formatted(f".TH X 1\n.PP\n{_literal(text)}\n", require_tool("groff"), "-ww", "-man", "-Tutf8")
    assert text in reported
