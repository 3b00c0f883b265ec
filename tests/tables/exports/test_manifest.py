"""Manifests that are read: only those of exports, which name only an export's files."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kafkasniff.errors import UsageError
from kafkasniff.tables.exports.manifest import FileEntry, Manifest, TableEntry, parse_manifest
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.rows import SCHEMA_VERSION

FILE = FileEntry("exchanges/date=2026-11-21/part-00001-00000.parquet", 3, 100, 1, open=True)
MANIFEST = Manifest(
    "kafkasniff-export", SCHEMA_VERSION, "0.1", "spark", ExportOptions(), 1, tables={"exchanges": TableEntry(3, [FILE])}
)


def parsed(**changes: Any) -> Manifest:
    changed = msgspec.structs.replace(MANIFEST, **changes)
    return parse_manifest(msgspec.json.encode(changed), "out/manifest.json", "out")


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert parsed() == MANIFEST
    assert parsed(state="state/run-00001.state").state == "state/run-00001.state"
    assert parsed(state="state/run-00001-0123456789ab.state").runs == 1


FOREIGN = (
    *("../../victim", "/etc/passwd", "exchanges/../../../victim", "exchanges//part-00001-00000.parquet"),
    *("exchanges/date=2026-11-21/../part-00001.parquet", "s3://bucket/exchanges/date=2026-11-21/part-00001.parquet"),
    *("exchanges/date=2026-11-21/.bashrc", "exchanges/date=2026-11-21/part-00001-00000.parquet\n"),
    *("exchanges/date=today/part-00001-00000.parquet", "records/date=2026-11-21/part-00001-00000.parquet"),
    *("manifest.json", "state/run-1.state", "run-00001.state", "state/run-00001-XYZ.state", ""),
)


def test_names_of_other_files() -> None:
    for path in FOREIGN:
        table = {"exchanges": TableEntry(3, [msgspec.structs.replace(FILE, path=path)])}
        for changes in ({"tables": table}, {"state": path}):
            with pytest.raises(UsageError, match="which is not a file of an export: name a new folder"):
                pytest.fail(f"{path!r} was accepted: {parsed(**changes)}")


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"schema_version": 9}, f"out has tables of schema version 9, not {SCHEMA_VERSION}"),
        ({"runs": -1}, "out/manifest.json is not a manifest of an export: "),
        *(({"runs": count}, "not a manifest") for count in (1 << 40, 1 << 70)),
        *(({name: "other"}, "not a manifest") for name in ("engine", "format")),
        ({"tables": {"exchanges": {"rows": -1, "files": []}}}, "not a manifest"),
    ],
    ids=str,
)
def test_values_that_no_manifest_has(changes: dict[str, Any], reported: str) -> None:
    data = json.dumps({**json.loads(msgspec.json.encode(MANIFEST)), **changes}).encode()
    with pytest.raises(UsageError, match=reported):
        parse_manifest(data, "out/manifest.json", "out")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format":"other"}', "\x00"])
def test_what_is_no_manifest(text: str) -> None:
    with pytest.raises(UsageError, match="not a manifest of an export"):
        parse_manifest(text.encode(), "out/manifest.json", "out")
