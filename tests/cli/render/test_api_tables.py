"""Definitions as tables of text."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.cli.render.api_tables import (
    api_list,
    coverage_table,
    definition_page,
    release_counts,
    release_table,
    version_page,
)
from kafkasniff.cli.render.rich_text import as_text
from kafkasniff.kafka.apis.coverage import PairCount, Proof
from kafkasniff.kafka.apis.dissectors import Api, api, api_keys
from kafkasniff.kafka.apis.releases import spoken_by
from kafkasniff.kafka.schema.data_schemas import data_definitions, data_schema
from kafkasniff.kafka.schema.definition_parser import parse_data


def known(key: int) -> Api:
    found = api(key)
    assert found is not None
    return found


def lines(*parts: object, width: int = 160) -> list[str]:
    return as_text(parts, width=width, coloured=False).splitlines()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("width", "hidden"),
    [(60, ["releases, flexible, summary"]), (80, ["summary"]), (90, ["summary"]), (120, []), (200, [])],
)
def test_one_line_per_api(width: int, hidden: list[str]) -> None:
    shown = lines(api_list([known(key) for key in api_keys()]), width=width)
    assert len(shown) == 1 + len(api_keys()) + len(hidden)
    assert max(map(len, shown)) <= width


@pytest.mark.parametrize("key", sorted(api_keys()))
def test_pages_have_every_field(key: int) -> None:
    found = known(key)
    whole = lines(*definition_page(found))
    assert whole[0] == f"{found.name}  key {key}"
    names = {line.split()[0] for line in whole if line.startswith("  ")}
    for version in found.versions:
        request, response = found.request(version), found.response(version)
        page = lines(*version_page(found, version, [request, response]))
        assert page[0] == f"{found.name}  version {version}"
        for schema in (request, response):
            for field in (*schema.root.fields, *schema.root.tagged):
                assert any(line.split()[:1] == [field.name] for line in page)
                assert field.name in names


def test_a_message_without_fields() -> None:
    page = lines(*version_page(known(18), 0, [known(18).request(0), known(18).response(0)]))
    assert page[page.index("request  header 1") + 1] == "  no fields"
    assert "first release 0.10.0, not flexible" in page


def test_notes_of_fields() -> None:
    text = """data One   kind file   versions 0-1   flexible 1+
  name    string?  0+  nullable 1+
  word    string   0+  secret
  value   bytes    1+  payload  tag 3
"""
    (found,) = parse_data(Path("some.txt"), text)
    notes = {line.split()[0]: line.split()[3:] for line in lines(*definition_page(found)) if line.startswith("  ")}
    assert notes == {
        "field": [],
        "name": ["null", "in", "1"],
        "word": ["secret"],
        "value": ["tag", "3,", "payload"],
    }


def test_enums_are_explained_once() -> None:
    found = known(32)
    page = lines(*definition_page(found))
    enums = [line for line in page if line.startswith("enum ")]
    assert len(enums) == len(set(enums)) > 0
    used = {line.rpartition("enum ")[2].split(",")[0] for line in page if " enum " in line}
    assert used == {line.split()[1] for line in enums}


def test_data_structures() -> None:
    for name, found in data_definitions().items():
        assert lines(*definition_page(found))[0] == f"{name}  {found.kind}"
        version = found.message.versions.low
        schema = data_schema(name, version)
        assert schema is not None
        assert lines(*version_page(found, version, [schema]))[0] == f"{name}  version {version}"


def test_versions_of_a_release() -> None:
    spoken = spoken_by("3.9")
    rows = [(key, known(key).name, versions) for key, versions in spoken.items()]
    shown = lines(release_table("3.9", rows))
    assert shown[0].split() == ["key", "API", "versions", "in", "3.9"]
    assert len(shown) == 1 + len(rows)
    assert [line.split()[:3] for line in shown[1:]] == [[str(key), name, str(one)] for key, name, one in rows]


def test_coverage() -> None:
    found = known(12)
    proofs: list[Proof | None] = [Proof(("4.0",)), Proof(("4.0",), ("a.pcap",)), None, *[Proof((), ("a.pcap",))] * 2]
    assert len(proofs) == len(list(found.versions))
    shown = lines(coverage_table([(found, proofs)]))
    assert shown[1].split() == ["12", "Heartbeat", "5", "4", "0-1", "1,", "3-4", "2"]


def test_counts_by_release() -> None:
    shown = lines(release_counts([PairCount("4.0", 9, 8, 7, 6)]))
    assert shown[1].split() == ["4.0", "9", "8", "7", "6"]
