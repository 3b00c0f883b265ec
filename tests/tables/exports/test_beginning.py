"""What a run begins with: other options, states, streams and salts are refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkasniff.enrich import Catalog
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.errors import UsageError
from kafkasniff.redact.payload import Payload
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.checkpoint.carried import Carried
from kafkasniff.tables.exports.beginning import check_continues, new_state
from kafkasniff.tables.exports.manifest import Manifest
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.rows import SCHEMA_VERSION
from kafkasniff.tables.rows.sessions import Sessions
from tests.tables.exports.exported import CAPTURES, cut, files, manifest, run


def test_other_options_and_states_are_refused(tmp_path: Path) -> None:
    """Otherwise, anyone who can write the folder's state could put passwords into the tables of the next run."""
    out = tmp_path / "out"
    parts = cut(CAPTURES / "java-codecs.pcap", (0.5,), tmp_path)
    run(parts[:1], out)
    state, before = out / manifest(out)["state"], files(out)
    for options in (ExportOptions(bodies=False), ExportOptions(tables=("exchanges",)), ExportOptions(ports=(9092,))):
        with pytest.raises(UsageError, match="other options"):
            run(parts, out, options)
    shown = new_state(ExportOptions(show_secrets=True), Catalog(), sessions=False)
    old = b"kafkasniff-state 1 0123456789abcdef 0.0.1\n" + state.read_bytes().split(b"\n", 1)[1]
    for data, reported in (
        (dump(Carried([dump(shown)], Sessions(), LearnedFacts())), "has other options than its export"),
        (old, r"written by kafkasniff 0\.0\.1"),
    ):
        state.write_bytes(data)
        with pytest.raises(UsageError, match=reported):
            run(parts, out)
        assert files(out) == before


def export_with(**values: Any) -> Any:
    found = Manifest("kafkasniff-export", SCHEMA_VERSION, "1.0", "local", **{"options": ExportOptions(), **values})
    return SimpleNamespace(manifest=found, name="here")


def test_streams_and_other_salts_are_refused() -> None:
    """A stream numbers its captures itself. Salts are not shown."""
    options = ExportOptions(payload=Payload.hashed(b"one salt"))
    found = export_with(options=options.public)
    check_continues(found, options)
    for export, wanted, streams, reported in (
        (export_with(batch=3), ExportOptions(), False, "a stream writes into here"),
        (export_with(), ExportOptions(), True, "here is not the export of a stream"),
        (found, ExportOptions(payload=Payload.hashed(b"another salt")), False, "hashes with another salt"),
        (found, ExportOptions(), False, r"other options \(payload\)"),
    ):
        with pytest.raises(UsageError, match=reported):
            check_continues(export, wanted, streams=streams)
