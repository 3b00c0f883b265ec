"""Shards in sections: all rows are as without them, and states are equal wherever packets are cut into batches."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture import open_captures
from kafkasniff.enrich import Catalog
from kafkasniff.enrich.learned_facts import LearnedFacts
from kafkasniff.spark import pieces
from kafkasniff.spark.connections import BEGIN_VALUES
from kafkasniff.spark.shard_sections import LEAST_BYTES, SECTION_BYTES, SectionSizes, section_sizes, state_hash
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.exports.beginning import new_state
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staging import new_stager, settle, stage
from tests.choice import examples, one_in
from tests.spark.both_stages import Sections, by_stages
from tests.tables.exports.exported import CAPTURES

OPTIONS = ExportOptions()
EVERY = sorted(path for path in CAPTURES.rglob("*.pcap*") if path.suffix in {".pcap", ".pcapng"})
GB = 1 << 30
SIZES = [SectionSizes(1, 1), SectionSizes(100, 1500), SectionSizes(3000, 6000)]


@pytest.mark.parametrize(
    ("size", "parallel", "own"),
    [
        (0, 1, LEAST_BYTES),
        (100 * GB, 1, 200 * GB),
        # All that two cores get: one task keeps both busy.
        (100 * GB, 2, 100 * GB),
        (100 * GB, 8, 25 * GB),
        (100 * GB, 1000, LEAST_BYTES),
    ],
)
def test_when_a_shard_is_divided(size: int, parallel: int, own: int) -> None:
    assert section_sizes(size, parallel) == SectionSizes(own, SECTION_BYTES)


def divided(
    captures: list[Path], folder: Path, sizes: SectionSizes, shards: int = 2, options: ExportOptions = OPTIONS
) -> Sections:
    """The sections of captures, which have no effect on rows."""
    sections = Sections(sizes)
    with pytest.MonkeyPatch.context() as patch:
        # Sections begin with batches.
        patch.setattr(pieces, "MERGE_BYTES", 1)
        patch.setattr(pieces, "PIECE_BYTES", 2000)
        wanted = by_stages(captures, folder / "whole", shards=shards, options=options)
        found = by_stages(captures, folder / "sections", shards=shards, sections=sections, options=options)
    assert found == wanted
    assert sections.wrong == []
    return sections


@pytest.mark.parametrize("capture", one_in(6, EVERY), ids=lambda path: path.stem)
def test_rows_do_not_depend_on_sections(capture: Path, tmp_path: Path) -> None:
    """Every state that is found without making rows is the one that decoding ends with."""
    tasks = 0
    for number, sizes in enumerate(SIZES):
        tasks += divided([capture], tmp_path / str(number), sizes, shards=1 + number).tasks
    assert tasks or capture.stat().st_size < 20_000


@pytest.mark.parametrize("seed", range(3))
def test_flaws_in_records_are_counted_once(seed: int, tmp_path: Path) -> None:
    """Bytes are changed. Exchanges with flaws in their records take other paths, which a section does not see."""
    random = Random(seed)
    data = bytearray((CAPTURES / "java-codecs.pcap").read_bytes())
    for _ in range(60):
        data[random.randrange(len(data) // 3, len(data))] ^= 1 << random.randrange(8)
    capture = tmp_path / "damaged.pcap"
    capture.write_bytes(data)
    assert divided([capture], tmp_path, SectionSizes(3000, 3000)).tasks > 3


@pytest.mark.parametrize(
    "options",
    [ExportOptions(records=True), ExportOptions(headers=True, tables=("exchanges",))],
    ids=["full", "headers"],
)
def test_other_options(options: ExportOptions, tmp_path: Path) -> None:
    assert divided([CAPTURES / "java-codecs.pcap"], tmp_path, SIZES[1], options=options).tasks > 1


def test_a_section_with_the_wrong_state_is_noticed(tmp_path: Path) -> None:
    class Confused(Sections):
        """The second section is given the state that the first begins with."""

        def begin(self, begins: dict[tuple[int, int], bytes], shard: int, number: int) -> bytes:
            if number != 2:
                return super().begin(begins, shard, number)
            order = BEGIN_VALUES.load(begins[shard, 2]).order
            return BEGIN_VALUES.dump(msgspec.structs.replace(BEGIN_VALUES.load(begins[shard, 1]), order=order))

    sections = Confused(SectionSizes(3000, 3000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "MERGE_BYTES", 1)
        patch.setattr(pieces, "PIECE_BYTES", 2000)
        by_stages([CAPTURES / "java-codecs.pcap"], tmp_path, sections=sections)
    assert sections.tasks > 3
    # The third begins with the right state, but the one before ended with another.
    assert {task.first for task in sections.wrong} == {2, 3}


class Nothing:
    """Takes rows."""

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        del table, batch

    def close(self) -> None:
        pass


def hashes(capture: Path, random: Random | None, *, rows: bool) -> list[bytes]:
    """Hashes of the states after every 97th packet of a capture; `random`: in batches of any size between them."""
    state = new_state(OPTIONS, Catalog(learned_facts=LearnedFacts()), sessions=False)
    options = OPTIONS if rows else msgspec.structs.replace(OPTIONS, tables=())
    stager = new_stager(state, options, None, Nothing())
    found: list[bytes] = []
    with open_captures([str(capture)]) as source:
        for batch in source:
            batch.captures = source.captures
            at = 0
            while at < len(batch):
                stop = min(at - at % 97 + 97, len(batch))
                size = stop - at if random is None else random.choice([1, 3, 20, 97])
                one, batch_left = batch.split(at)[1], min(at + size, stop)
                stage(state, stager, one.split(batch_left - at)[0])
                at = batch_left
                if at == stop:
                    settle(state, stager)
                    found.append(state_hash(dump(state), OPTIONS))
    return found


@examples(60)
@given(capture=st.sampled_from(EVERY), seed=st.integers(0, 99), rows=st.booleans())
def test_states_are_equal_however_packets_are_cut_into_batches(capture: Path, seed: int, *, rows: bool) -> None:
    wanted = hashes(capture, None, rows=True)
    assert hashes(capture, Random(seed), rows=rows) == wanted
    assert len(set(wanted)) > 1 or len(wanted) < 3


def test_other_states_have_other_hashes() -> None:
    found = hashes(CAPTURES / "java-streams-classic.pcap", None, rows=True)
    assert len(set(found)) == len(found) > 3
