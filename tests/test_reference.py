"""The generated parts of docs/ match the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kafkasniff
from kafkasniff import errors
from kafkasniff.analysis.detectors import detector_names
from kafkasniff.cli.environment import Exit
from tests.reference import DOCS, detectors_page, options_page, pages


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_the_page_matches_the_code(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == pages()[path], "python -m tests.reference"


def test_sentences_about_detectors_stay_and_thresholds_follow_the_code() -> None:
    text = (DOCS / "detectors.md").read_text(encoding="utf-8")
    assert detectors_page(re.sub(r"^- `at_least` = .*\n", "- `of_yesterday` = 7: A.\n", text, flags=re.M)) == text
    without = detectors_page(
        re.sub(r"^## skewed-partitions\n.*", "## of-yesterday\n\nReports.\n", text, flags=re.M | re.S)
    )
    assert re.findall("^## (.*)$", without, re.M) == list(detector_names())
    assert without.split("## skewed-partitions\n\n")[1].startswith("- `factor` = ")


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


def test_contributing_lists_every_module_at_the_root_of_the_package() -> None:
    table = (
        (DOCS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("| --- | --- |")[2].partition("\n\n")[0]
    )
    names = [name for row in table.splitlines() for name in re.findall(r"`([\w./{},]+)`", row.split(" | ")[0])]
    # Rows may be about folders of a folder.
    listed = {f"{name.partition('/')[0]}/" if "/" in name else name for name in names}
    package = Path(kafkasniff.__file__).parent
    there = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in package.iterdir()
        if path.suffix == ".py" or (path.is_dir() and any(one.suffix in (".py", ".zig") for one in path.iterdir()))
    }
    assert listed == there - {"__init__.py", "__main__.py"}
