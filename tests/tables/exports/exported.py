"""Helpers for tests of exports: run one, read it, cut captures as tcpdump rotates them."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet as pq

from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.run import Result, export
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.staged import STAGED

CAPTURES = Path(__file__).resolve().parents[3] / "captures"
MANIFEST = {entry["file"]: entry for entry in json.loads((CAPTURES / "manifest.json").read_text())["captures"]}
LOGGED = sorted(name for name, entry in MANIFEST.items() if entry.get("sidecar") and entry["requests_complete"])
"""Captures whose clients logged all their requests."""

Rows = list[dict[str, Any]]


def logged(name: str) -> dict[str, Rows]:
    """Log entries of the clients of a capture, by kind."""
    kinds: dict[str, Rows] = {}
    for line in (CAPTURES / MANIFEST[name]["sidecar"]).read_text().splitlines():
        entry = json.loads(line)
        kinds.setdefault(entry["kind"], []).append(entry)
    return kinds


def run(
    captures: Sequence[Path | str], folder: Path | str, options: ExportOptions | None = None, **more: Any
) -> Result:
    return export([str(path) for path in captures], folder, options or ExportOptions(), **more)


TWO = ExportOptions(tables=("exchanges", "connections"))
"""Fewer files: for tests that kill a run at each of its steps."""


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return found


def rows(folder: Path, table: str) -> Rows:
    """The rows of a table, file by file in the order of the manifest."""
    found: Rows = []
    for entry in manifest(folder)["tables"][table]["files"]:
        part = pq.ParquetFile(folder / entry["path"]).read().to_pylist()
        assert len(part) == entry["rows"]
        found += part
    return found


def tables(folder: Path) -> dict[str, Rows]:
    """All rows, in an order independent of files."""
    return {table: sorted(rows(folder, table), key=repr) for table in manifest(folder)["tables"]}


def by_partition(folder: Path) -> dict[str, dict[str, Rows]]:
    """The rows of each table and partition, with finished and unfinished rows kept apart."""
    found: dict[str, dict[str, Rows]] = {table: {} for table in TABLE_NAMES}
    for table, entry in manifest(folder)["tables"].items():
        for file in entry["files"]:
            name = f"{file['path'].split('/')[1]} {file.get('open', False)}"
            found[table].setdefault(name, []).extend(pq.ParquetFile(folder / file["path"]).read().to_pylist())
    return {table: {name: sorted(part, key=repr) for name, part in parts.items()} for table, parts in found.items()}


def without_software(found: dict[str, Rows]) -> dict[str, Rows]:
    """Rows of tables without what clients report of themselves, sorted anew."""
    lacking = {"software_name": None, "software_version": None}
    return {**found, "exchanges": sorted(({**row, **lacking} for row in found["exchanges"]), key=repr)}


def files(folder: Path) -> set[str]:
    """All files in a folder, listed in the manifest or not."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def named_files(folder: Path) -> set[str]:
    """The files listed in the manifest, and the manifest itself."""
    reported = manifest(folder)
    paths = {entry["path"] for table in reported["tables"].values() for entry in table["files"]}
    return paths | {reported["state"], "manifest.json"}


def cut(capture: Path, places: Sequence[float], folder: Path) -> list[Path]:
    """A pcap file cut at packets near these fractions of its length."""
    data = capture.read_bytes()
    order = "<" if data[:4] in {b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"} else ">"
    starts = [24]
    while starts[-1] < len(data):
        starts.append(starts[-1] + 16 + struct.unpack_from(order + "I", data, starts[-1] + 8)[0])
    packets = len(starts) - 1
    borders = [0, *(int(packets * place) for place in places), packets]
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for number, (first, last) in enumerate(pairwise(borders)):
        parts.append(folder / f"part-{number}.pcap")
        parts[-1].write_bytes(data[:24] + data[starts[first] : starts[last]])
    return parts


class StagedRows:
    def __init__(self) -> None:
        self.batches: dict[str, list[pa.RecordBatch]] = {table: [] for table in TABLE_NAMES}
        self.closed = False

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        assert batch.schema.equals(STAGED[table])
        self.batches[table].append(batch)

    def close(self) -> None:
        self.closed = True

    def sizes(self, table: str) -> list[int]:
        return [len(batch) for batch in self.batches[table]]

    def rows(self, table: str) -> Rows:
        """Independent of batches."""
        return sorted((row for batch in self.batches[table] for row in batch.to_pylist()), key=repr)

    def tables(self) -> dict[str, Rows]:
        return {table: self.rows(table) for table in TABLE_NAMES}
