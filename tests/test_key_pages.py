"""The reference describes every key, column and field that the code can emit, and its committed pages are current."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from kafkasniff.analysis import find_question, parameters_of, question_names
from kafkasniff.analysis.columns import MEANINGS
from kafkasniff.analysis.detectors import SEVERITIES, detector_names, find_detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE
from kafkasniff.analysis.visibility import REASONS
from kafkasniff.filters.fields import FIELDS
from kafkasniff.filters.paths import RECORDS
from kafkasniff.sinks.csv import COLUMNS
from kafkasniff.sinks.json_keys import JSON_KEYS
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.key_pages import RESULTS, described, makers, pages

DOCS = ROOT / "docs"
LINES = ROOT / "tests" / "golden"
MESSAGES, TOKENS, PROBLEMS, FIELD, BATCHES, RECORD, BESIDE = JSON_KEYS.values()


@pytest.mark.parametrize("name", makers())
def test_committed_pages_are_current(name: str) -> None:
    assert (DOCS / "reference" / name).read_text(encoding="utf-8") == pages()[name], "run `make manual`"


# -- JSON lines --------------------------------------------------------------------------------------------------------


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in a decoded JSON value."""
    if isinstance(value, dict):
        yield value
        for one in value.values():
            yield from objects(one)
    elif isinstance(value, list):
        for one in value:
            yield from objects(one)


def golden_lines() -> Iterator[dict[str, Any]]:
    for path in sorted(LINES.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            if "type" in found:
                yield found


def test_keys_of_golden_lines_are_described() -> None:
    by_type = {"request": MESSAGES, "response": MESSAGES, "sasl": TOKENS, "problem": PROBLEMS}
    seen: dict[str, set[str]] = {name: set() for name in by_type}
    beside: set[str] = set()
    for line in golden_lines():
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


def test_keys_that_the_decoder_adds_are_described() -> None:
    """Golden files do not have all of them: keys that begin with `_` and are assigned in the source count, too."""
    added: set[str] = set()
    for folder in ("kafka", "enrich"):
        for path in (ROOT / "kafkasniff" / folder).rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            if '"_' not in source:
                continue
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Assign):
                    slices = [one.slice for one in node.targets if isinstance(one, ast.Subscript)]
                elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setdefault":
                    slices = node.args[:1]
                else:
                    continue
                added.update(one.value for one in slices if isinstance(one, ast.Constant) and type(one.value) is str)
    found = {key for key in added if re.fullmatch(r"_[a-z]+(_[a-z]+)*", key)}
    assert "_delete_horizon" in found
    assert found - BESIDE.keys() - BATCHES.keys() == set()


def test_filters_and_csv_have_the_same_names() -> None:
    records = next(one for one in RECORDS[0].fields if one.name == "records")
    assert [one.name for one in RECORDS] == list(FIELD)
    assert [one.name for one in RECORDS[0].fields] == [name for name in BATCHES if not name.startswith("_")]
    assert [one.name for one in records.fields] == list(RECORD)
    assert set(COLUMNS) <= MESSAGES.keys()


# -- columns, fields, thresholds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", question_names())
def test_columns_of_questions(name: str) -> None:
    question = find_question(name)()
    assert all(question.meanings().values())
    assert question.columns.keys() <= set(question.result().schema.names), "described, not in the answer"
    section = pages()["questions.md"].partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^- `--([a-z-]+)`", section, re.M)) == {
        one.name.replace("_", "-") for one in parameters_of(find_question(name))
    }


def test_common_meanings_are_used() -> None:
    used = {name for one in question_names() for name in find_question(one)().result().schema.names}
    assert MEANINGS.keys() <= used


def test_fields_have_meanings() -> None:
    assert all(field.meaning for field in FIELDS.values())


def test_detectors_have_thresholds_and_caveats() -> None:
    page = pages()["detectors.md"]
    assert re.findall(r"^## (.*)$", page, re.M) == list(detector_names())
    late = page.partition("## late-answers")[2].partition("\n## ")[0]
    assert "**Caveats.** Network time" in late
    assert "- `at_least` = 5: " in late
    for name in detector_names():
        assert "\n" in (find_detector(name).__doc__ or "") or name in ("small-batches", "uncompressed-batches"), name


# -- JSON of commands --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("check", ["captures/java-errors.pcap"]),
        ("stats", ["captures/java-group-classic.pcap"]),
        ("diff", ["captures/java-0.11.pcap", "captures/java-2.4.pcap"]),
        ("audit", ["--target", "4.0", "--from", "3.9", "captures/old-groups.pcap"]),
    ],
)
def test_keys_of_results_are_described(command: str, arguments: list[str]) -> None:
    paths = [str(ROOT / one) if one.startswith("captures/") else one for one in arguments]
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
    how_to = (DOCS / "check.md").read_text()
    section = how_to.partition("\n### Reasons\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \| ", section, re.M) == list(REASONS)
    assert MAX_EVIDENCE == 10
    assert f"{len(question_names())} questions" in (ROOT / "README.md").read_text()
