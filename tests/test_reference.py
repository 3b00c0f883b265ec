"""The reference describes every key, column, bound and version that the code has, and its pages are current."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kafkasniff import errors
from kafkasniff.analysis import find_question, question_names
from kafkasniff.analysis.columns import MEANINGS
from kafkasniff.analysis.detectors import SEVERITIES, detector_names
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE
from kafkasniff.analysis.visibility import REASONS
from kafkasniff.cli.environment import Exit
from kafkasniff.filters.expression import RECORDS
from kafkasniff.filters.fields import FIELDS
from kafkasniff.sinks.csv import COLUMNS
from kafkasniff.sinks.formats import JSON_KEYS
from kafkasniff.text.problem_kinds import PROBLEM_KINDS
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.evidence.decoded import objects
from tests.key_pages import RESULTS, described, makers, pages
from tests.reference import bounds, main, options_page

DOCS = ROOT / "docs"
MESSAGES, TOKENS, PROBLEMS, FIELD, BATCHES, RECORD, BESIDE = JSON_KEYS.values()


@pytest.mark.parametrize("name", makers())
def test_committed_pages_are_current(name: str) -> None:
    assert (DOCS / "reference" / name).read_text(encoding="utf-8") == pages()[name], "run `make manual`"


@pytest.mark.extended
def test_the_pages_of_the_site(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 0
    contents = (DOCS / "site" / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"/docs/reference/([a-z-]+)", contents)) == {path.stem for path in tmp_path.iterdir()}


# -- keys and columns


def test_keys_of_golden_lines_are_described() -> None:
    by_type = {"request": MESSAGES, "response": MESSAGES, "sasl": TOKENS, "problem": PROBLEMS}
    seen: dict[str, set[str]] = {name: set() for name in by_type}
    beside: set[str] = set()
    for path in (ROOT / "tests" / "golden").glob("*.jsonl"):
        for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            seen[line["type"]].update(line)
            for one in objects(line.get("body")):
                beside.update(key for key in one if key.startswith("_"))
                if isinstance(one.get("batches"), list) and "truncated_bytes" in one:
                    assert one.keys() <= FIELD.keys()
                    for batch in one["batches"]:
                        assert batch.keys() <= BATCHES.keys()
                        for record in batch.get("records") or ():
                            assert {key for key in record if not key.startswith("_")} <= RECORD.keys()
    assert {key for name, keys in seen.items() for key in keys - by_type[name].keys()} == set()
    assert beside - BESIDE.keys() - BATCHES.keys() == set()
    # Nothing is described that no line has, except what these captures do not need.
    rare = {"capture", "header_tags", "body_version", "_delete_horizon", "_unknown_tags"}
    described_keys = {key for keys in (*by_type.values(), BESIDE) for key in keys}
    assert described_keys - set().union(*seen.values()) - beside - rare == set()


def test_filters_and_csv_have_the_same_names() -> None:
    records = next(one for one in RECORDS[0].fields if one.name == "records")
    assert [one.name for one in RECORDS] == list(FIELD)
    assert [one.name for one in RECORDS[0].fields] == [name for name in BATCHES if not name.startswith("_")]
    assert [one.name for one in records.fields] == list(RECORD)
    assert set(COLUMNS) <= MESSAGES.keys()
    assert all(field.meaning for field in FIELDS.values())


def test_columns_of_questions() -> None:
    used = set()
    for name in question_names():
        question = find_question(name)()
        names = set(question.result().schema.names)
        used |= names
        assert all(question.meanings().values()), name
        assert question.columns.keys() <= names, f"{name}: described, not in the answer"
    assert MEANINGS.keys() <= used


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("check", "captures/java-errors.pcap"),
        ("stats", "captures/java-group-classic.pcap"),
        ("diff", "captures/java-0.11.pcap captures/java-2.4.pcap"),
        ("audit", "--target 4.0 --from 3.9 captures/old-groups.pcap"),
    ],
)
def test_keys_of_results_are_described(command: str, arguments: str) -> None:
    paths = [str(ROOT / one) if one.startswith("captures/") else one for one in arguments.split()]
    (result,) = kafkasniff(command, *paths, "--format", "json").objects
    page = pages()[f"json-{command}.md"]
    keys = set(re.findall(r"^\| `(\w+)` \|", page, re.M)) | set(re.findall(r"`(\w+)` as in", page))
    # Values with names of their own: of subjects, figures, lists; the findings of `stats` are those of `check`.
    named = {"subject", "values", "more", "differences", *({"findings", "examples"} if command == "stats" else ())}
    found = {key for one in objects(without(result, named)) for key in one}
    assert found - keys - set(SEVERITIES) == set()
    kinds = (*RESULTS[command].whole, *RESULTS[command].parts.values())
    assert [key for kind in kinds for key, text in described(kind).items() if not text] == []


def without(value: Any, names: Iterable[str]) -> Any:
    """The value without what is below some keys."""
    if isinstance(value, dict):
        return {key: None if key in names else without(one, names) for key, one in value.items()}
    return [without(one, names) for one in value] if isinstance(value, list) else value


def test_reasons_and_counts_in_prose() -> None:
    section = (DOCS / "check.md").read_text().partition("\n### Reasons\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \| ", section, re.M) == list(REASONS)
    assert MAX_EVIDENCE == 10
    assert f"{len(question_names())} questions" in (ROOT / "README.md").read_text()
    assert re.findall(r"^## (.*)$", pages()["detectors.md"], re.M) == [*detector_names(), "Captures of trouble"]


# -- options and exit codes


def test_options_and_exit_codes() -> None:
    page = options_page()
    assert page.count("- `--slower-than DURATION`: ") == 1, "an option of several commands is listed once"
    listed = page.partition("## Exit codes")[2]
    codes = {int(code) for cell in re.findall(r"^\| ([\d, ]+) \|", listed, re.M) for code in cell.split(", ")}
    assert codes == {int(code) for code in Exit}
    assert {int(code) for code in re.findall(r"\(exit code (\d+)\)", errors.__doc__ or "")} <= codes


# -- bounds

SECURITY = (ROOT / "SECURITY.md").read_text()
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def bound_of(module: str, constant: str) -> object:
    """The value of a constant of a module, or of a source of the kernel."""
    if not module.startswith("kernel."):
        return getattr(importlib.import_module(f"kafkasniff.{module}"), constant)
    source = (ROOT / "kafkasniff" / f"{module.replace('.', '/')}.zig").read_text()
    found = re.search(rf"^(?:pub )?const {constant} = ([\d_]+)(?: << (\d+))?;", source, re.M)
    assert found is not None, constant
    return int(found[1]) << int(found[2] or 0)


def test_bounds_in_the_security_page() -> None:
    listed = dict(re.findall(r"^\| `([\w.]+\.[A-Z_]+)` \| (.*?) \|", SECURITY, re.M))
    assert len(listed) > 20
    for name, text in listed.items():
        module, _, constant = name.rpartition(".")
        found = re.match(r"([\d,]+)(?: (KiB|MiB|GiB))?\b", text)
        value = int(found[1].replace(",", "")) * UNITS.get(found[2], 1)
        assert bound_of(module, constant) == value, name
    rows = re.findall(r"^\| `[\w.]+\.[A-Z_]+` \|.*?\|(.*)\|$", SECURITY, re.M)
    kinds = {kind for row in rows for kind in re.findall(r"`([a-z0-9-]+)`", row)}
    assert kinds - {"unanswered"} <= {kind for about in PROBLEM_KINDS.values() for kind in about}
    assert '"/SECURITY.md",' in (ROOT / "pyproject.toml").read_text()
    for target in re.findall(r"\]\(((?:docs|tests)/[^)#]+)", SECURITY):
        assert (ROOT / target).is_file(), target


@pytest.mark.extended
def test_bounds_have_values_and_reasons() -> None:
    found = {bound.name: bound for bound in bounds()}
    assert len(found) > 150
    assert found["kafka.connection.events.MAX_FRAME"].value == 100 << 20
    # Those in a group of constants share the sentence of the group.
    assert sum(not bound.text for bound in found.values()) < 20
