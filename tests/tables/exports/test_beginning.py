"""The initial state of a run: other options and states are refused, and shards share what was known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_other_options_are_refused(tmp_path: Path) -> None:
    parts = cut(CAPTURES / "java-codecs.pcap", (0.5,), tmp_path)
    run(parts[:1], tmp_path / "out")
    for options in (ExportOptions(bodies=False), ExportOptions(tables=("exchanges",)), ExportOptions(ports=(9092,))):
        with pytest.raises(UsageError, match="other options"):
            run(parts, tmp_path / "out", options)


def test_a_state_of_another_version_is_refused(tmp_path: Path) -> None:
    parts = cut(CAPTURES / "java-codecs.pcap", (0.5,), tmp_path)
    run(parts[:1], tmp_path / "out")
    state = tmp_path / "out" / manifest(tmp_path / "out")["state"]
    _, rest = state.read_bytes().split(b"\n", 1)
    state.write_bytes(b"kafkasniff-state 1 0123456789abcdef 0.0.1\n" + rest)
    before = files(tmp_path / "out")
    with pytest.raises(UsageError, match=r"written by kafkasniff 0\.0\.1"):
        run(parts, tmp_path / "out")
    assert files(tmp_path / "out") == before


def test_a_state_does_not_decide_whether_secrets_are_shown(tmp_path: Path) -> None:
    """Otherwise, anyone who can write the folder's state could put passwords into the tables of the next run."""
    parts = cut(CAPTURES / "java-codecs.pcap", (0.5,), tmp_path)
    run(parts[:1], tmp_path / "out")
    state = tmp_path / "out" / manifest(tmp_path / "out")["state"]
    shown = new_state(ExportOptions(show_secrets=True), Catalog(), sessions=False)
    state.write_bytes(dump(Carried([dump(shown)], Sessions(), LearnedFacts())))
    before = files(tmp_path / "out")
    for jobs in (1, 2):
        with pytest.raises(UsageError, match="has other options than its export"):
            run(parts, tmp_path / "out", jobs=jobs)
    assert files(tmp_path / "out") == before


NOTHING = Carried([], Sessions(), LearnedFacts())
totals = st.builds(Summary, packets=st.integers(0, 9), requests=st.integers(0, 9), bytes_lost=st.integers(0, 9))


def loaded(states: list[bytes], options: ExportOptions) -> list[ShardState]:
    return [load_state(one, options) for one in states]


@given(st.lists(totals, max_size=4))
def test_totals_of_shards(parts: list[Summary]) -> None:
    found = total(parts)
    for name in ("packets", "requests", "bytes_lost"):
        assert getattr(found, name) == sum(getattr(part, name) for part in parts)


def test_as_many_shards_as_before_continue_unchanged() -> None:
    carried = Carried([b"one", b"two"], Sessions(), LearnedFacts())
    assert first_states(carried, 2, ExportOptions(), {}) is carried.shards


@pytest.mark.parametrize("shards", [1, 3])
def test_a_first_run_gives_each_shard_its_numbers(shards: int) -> None:
    """Ids of connections must not collide."""
    options = ExportOptions()
    states = loaded(first_states(NOTHING, shards, options, {"A" * 22: "orders"}), options)
    assert len(states) == shards
    assert len({dump(state) for state in states}) == shards
    for state in states:
        assert state.enricher.catalog.topic("A" * 22) == "orders"
        assert state.start_ns is None


def test_other_numbers_of_shards_share_what_was_known() -> None:
    options = ExportOptions()
    before = loaded(first_states(NOTHING, 2, options, {}), options)
    for state in before:
        state.start_ns = 7
    before[0].enricher.missed.add(77)
    carried = Carried([dump(state) for state in before], Sessions(), LearnedFacts())
    for state in loaded(first_states(carried, 3, options, {}), options):
        assert state.start_ns == 7
        assert 77 in state.enricher.missed


def manifest_with(**values: Any) -> Manifest:
    return Manifest("kafkasniff-export", SCHEMA_VERSION, "1.0", "local", **{"options": ExportOptions(), **values})


def test_a_stream_numbers_its_captures_itself() -> None:
    check_no_stream(manifest_with(), "here")
    with pytest.raises(UsageError, match="a stream writes into here"):
        check_no_stream(manifest_with(batch=3), "here")


def test_another_salt_is_named() -> None:
    """Without showing either."""
    options = ExportOptions(payload=Payload.hashed(b"one salt"))
    found = manifest_with(options=options.public)
    check_options(found, options, "here")
    with pytest.raises(UsageError, match="hashes with another salt"):
        check_options(found, ExportOptions(payload=Payload.hashed(b"another salt")), "here")
    with pytest.raises(UsageError, match=r"other options \(payload\)"):
        check_options(found, ExportOptions(), "here")
