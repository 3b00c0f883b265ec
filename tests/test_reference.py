"""The generated parts of docs/ match the code."""

from __future__ import annotations

import re
from pathlib import Path

import kafkasniff
from kafkasniff import errors
from kafkasniff.cli.environment import Exit
from tests.conftest import ROOT
from tests.reference import bounds, bounds_page, main, options_page, pages

DOCS = ROOT / "docs"


def test_the_pages_are_written(tmp_path: Path) -> None:
    assert main([str(tmp_path / "reference")]) == 0
    assert {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "reference").iterdir()} == pages()
    contents = (DOCS / "site" / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"/docs/reference/([a-z-]+)", contents)) == {Path(name).stem for name in pages()}


def test_bounds_have_values_and_reasons() -> None:
    found = {bound.name: bound for bound in bounds()}
    assert len(found) > 150
    assert found["kafka.connection.framing.MAX_FRAME"].value == 100 << 20
    # Those in a group of constants share the sentence of the group.
    assert sum(not bound.text for bound in found.values()) < 20
    assert "| `tcp.delivery.MAX_HELD_BYTES` | 16,777,216 | Bytes held back" in bounds_page()


def test_options_of_several_commands_are_listed_once() -> None:
    page = options_page()
    assert page.count("- `--slower-than DURATION`: ") == 1
    assert page.count("- `--target RELEASE`: ") == 1


def test_all_exit_codes_are_listed() -> None:
    listed = options_page().partition("## Exit codes")[2]
    codes = {int(code) for cell in re.findall(r"^\| ([\d, ]+) \|", listed, re.M) for code in cell.split(", ")}
    assert codes == {int(code) for code in Exit}
    drawn = {int(code) for code in re.findall(r"\(exit code (\d+)\)", errors.__doc__ or "")}
    assert drawn
    assert drawn <= codes


def test_the_design_lists_every_room() -> None:
    table = (DOCS / "design.md").read_text(encoding="utf-8").partition("\n## Rooms\n")[2].partition("\n## ")[0]
    listed = [
        name
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`([\w./]+)`", row.split(" | ")[0])
    ]
    package = Path(kafkasniff.__file__).parent
    there = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in package.iterdir()
        if path.suffix == ".py" or (path.is_dir() and any(one.suffix in (".py", ".zig") for one in path.iterdir()))
    }
    assert sorted(listed) == sorted((there | {"dissectors/"}) - {"__init__.py", "__main__.py"})
