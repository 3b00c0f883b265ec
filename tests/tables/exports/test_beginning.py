"""The initial state of a run: other options, states, streams and salts are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkasniff.enrich import Catalog
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.errors import UsageError
from kafkasniff.redact.payload import Payload
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.checkpoint.carried import Carried
from kafkasniff.tables.exports.beginning import (
    check_no_stream,
    check_options,
    new_state,
)
from kafkasniff.tables.exports.manifest import SCHEMA_VERSION, Manifest
from kafkasniff.tables.exports.options import ExportOptions
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


def manifest_with(**values: Any) -> Manifest:
    return Manifest("kafkasniff-export", SCHEMA_VERSION, "1.0", "local", **{"options": ExportOptions(), **values})


def test_streams_and_other_salts_are_refused() -> None:
    """A stream numbers its captures itself. Salts are not shown."""
    check_no_stream(manifest_with(), "here")
    with pytest.raises(UsageError, match="a stream writes into here"):
        check_no_stream(manifest_with(batch=3), "here")
    options = ExportOptions(payload=Payload.hashed(b"one salt"))
    found = manifest_with(options=options.public)
    check_options(found, options, "here")
    with pytest.raises(UsageError, match="hashes with another salt"):
        check_options(found, ExportOptions(payload=Payload.hashed(b"another salt")), "here")
    with pytest.raises(UsageError, match=r"other options \(payload\)"):
        check_options(found, ExportOptions(), "here")
