"""The page about coverage is what the definitions, the releases and the list of what is proven give."""

from __future__ import annotations

import re

import pytest

import tests.coverage
from kafkasniff.kafka.apis.coverage import Proof, Proven, defined_pairs, proven
from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.schema.data_schemas import data_definitions
from tests.conftest import ROOT
from tests.coverage import page
from tests.vectors.reader import unproduced


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def rows(text: str) -> list[list[str]]:
    return [cells(line) for line in text.splitlines() if line.startswith("| ") and "---" not in line]


def versions_of(text: str) -> dict[int, str]:
    """`V 0-2, VC 3, 5` → version → code."""
    found: dict[int, str] = {}
    code = ""
    for part in text.split(", ") if text else ():
        *word, versions = part.split()
        code = word[0] if word else code
        low, _, high = versions.partition("-")
        found.update(dict.fromkeys(range(int(low), int(high or low) + 1), code))
    return found


def test_one_line_an_api_with_every_version() -> None:
    found = proven()
    lines = {
        row[1]: row for row in rows(page()) if row[0].isdecimal() and len(row) == 5 and api(int(row[0])) is not None
    }
    assert len(lines) == len(api_keys())
    reported = set()
    for key in api_keys():
        one = api(key)
        assert one is not None
        row = lines[one.name]
        assert row[0] == str(key)
        usual = dict.fromkeys(versions_of(row[2].partition(" (")[0]), "VC")
        for version, code in {**usual, **versions_of(row[4])}.items():
            reported.add((key, version))
            proof = found.pairs.get((key, version), Proof())
            assert ("V" in code, "C" in code) == (bool(proof.vectors), bool(proof.captures)), row
            assert code == "none" or (key, version) in found.pairs
    assert reported == defined_pairs()
    structures = page().partition("\n## Headers, records")[2].partition("\n## Record batches")[0]
    names = [name for row in rows(structures) for name in row[2].split(", ")]
    assert set(data_definitions()) <= set(names)
    assert len(names) - structures.count("\n### ") == len(data_definitions()), "each once, besides the heads"


def test_every_pair_without_proof_has_its_reason() -> None:
    left = defined_pairs() - proven().pairs.keys()
    explained = {(entry.name, version) for entry in unproduced() if entry.kind == "pair" for version in entry.versions}
    assert {(one.name, version) for key, version in left if (one := api(key)) is not None} == explained
    for entry in unproduced():
        assert f"- {entry.name} {entry.versions[0]}" in page()
        assert entry.reason in page()


def test_the_captures_that_prove_are_there() -> None:
    proving = {name for proof in proven().pairs.values() for name in proof.captures}
    assert len(proving) > 50
    assert [name for name in proving if not (ROOT / "captures" / name).is_file()] == []


def test_lines_are_short_enough_to_read() -> None:
    assert max(len(line) for line in page().splitlines()) < 1000


def test_the_page_changes_with_what_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = page()
    monkeypatch.setattr(tests.coverage, "proven", lambda: Proven({(52, 2): Proof(("4.4.0",), ("a.pcap",))}, {}, {}))
    text = page()
    assert text != whole
    assert re.search(r"^\| 52 \| Vote \| 0-2 \|  \| none 0-1 \|$", text, re.M)
    assert re.search(r"^\| 0 \| Produce \|.*\| none 0-13 \|$", text, re.M)
    assert f"| all | {len(defined_pairs())} | 1 | 1 | 1 |" in text
