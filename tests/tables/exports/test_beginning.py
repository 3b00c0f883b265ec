"""The initial state of a run: other options and states are refused, and shards share what was known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkasniff.enrich import Catalog
from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.errors import UsageError
from kafkasniff.model import Summary
from kafkasniff.redact.payload import Payload
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.checkpoint.carried import Carried, ShardState
from kafkasniff.tables.exports.beginning import (
    check_no_stream,
    check_options,
    first_states,
    load_state,
    new_state,
    total,
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


NOTHING = Carried([], Sessions(), LearnedFacts())


def loaded(states: list[bytes], options: ExportOptions) -> list[ShardState]:
    return [load_state(one, options) for one in states]


def test_totals_of_shards() -> None:
    parts = [Summary(packets=3, requests=1, bytes_lost=2), Summary(packets=4, requests=5)]
    found = total(parts)
    assert (found.packets, found.requests, found.bytes_lost) == (7, 6, 2)
    assert total([]) == Summary()


def test_a_first_run_gives_each_shard_its_numbers() -> None:
    """Ids of connections must not collide."""
    options = ExportOptions()
    states = loaded(first_states(NOTHING, 3, options, {"A" * 22: "orders"}), options)
    assert len({dump(state) for state in states}) == len(states) == 3
    for state in states:
        assert state.enricher.catalog.topic("A" * 22) == "orders"
        assert state.start_ns is None


def test_shards_share_what_was_known() -> None:
    """As many shards as before continue unchanged."""
    options = ExportOptions()
    before = loaded(first_states(NOTHING, 2, options, {}), options)
    for state in before:
        state.start_ns = 7
    before[0].enricher.missed.add(77)
    carried = Carried([dump(state) for state in before], Sessions(), LearnedFacts())
    assert first_states(carried, 2, options, {}) is carried.shards
    for state in loaded(first_states(carried, 3, options, {}), options):
        assert state.start_ns == 7
        assert 77 in state.enricher.missed


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
