"""Manifests that are read: only those of exports, which name only an export's files."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../exchanges/date=2026-11-21/part-00001.parquet",
        "records/date=2026-11-21/part-00001.parquet",
        "exchanges/date=2026-11-21/../part-00001.parquet",
        "exchanges/date=today/part-00001.parquet",
        "s3://bucket/exchanges/date=2026-11-21/part-00001.parquet",
    ],
)
def test_names_of_other_files(path: str) -> None:
    files = [msgspec.structs.replace(FILE, path=path)]
    with pytest.raises(UsageError, match="which is not a file of an export: name a new folder"):
        parsed(tables={"exchanges": TableEntry(3, files)})


@pytest.mark.parametrize("state", ["state/run-1.state", "run-00001.state", "state/run-00001-XYZ.state", "../x.state"])
def test_names_of_other_states(state: str) -> None:
    with pytest.raises(UsageError, match="which is not a file of an export"):
        parsed(state=state)


def test_another_version() -> None:
    with pytest.raises(UsageError, match=f"out has tables of schema version 9, not {SCHEMA_VERSION}"):
        parsed(schema_version=9)


@pytest.mark.parametrize("change", [{"runs": -1}, {"engine": "other"}, {"format": "other"}, {"runs": 1 << 40}])
def test_values_that_no_manifest_has(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"out/manifest.json is not a manifest of an export: "):
        parsed(**change)
