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
from tests.conftest import ROOT

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
