"""Both stages without a session make the rows of the local engine, even with shards in sections."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kafkasniff.spark.shard_sections import LEAST_BYTES, SECTION_BYTES, SectionSizes, section_sizes
from tests.choice import fewer, one_in
from tests.spark.both_stages import by_stages, decode, small_bounds
from tests.tables.exports.exported import CAPTURES, cut, run, tables

__all__ = ["small_bounds"]

EVERY = sorted(path for path in CAPTURES.rglob("*.pcap*") if path.suffix in {".pcap", ".pcapng"})
SIZES = [SectionSizes(1, 1), SectionSizes(100, 1500), SectionSizes(3000, 6000)]
LONG = CAPTURES / "java-codecs.pcap"


def damaged(path: Path, seed: int) -> Path:
    """Exchanges with flaws in their records take other ways."""
    random, data = Random(seed), bytearray(LONG.read_bytes())
    for _ in range(60):
        data[random.randrange(len(data) // 3, len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    return path


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("capture", one_in(30, EVERY, 7), ids=lambda path: path.stem)
def test_stages_make_the_rows_of_the_local_engine(capture: Path, tmp_path: Path) -> None:
    run([capture], tmp_path / "local")
    assert by_stages([capture], tmp_path / "stages", shards=3, size=7) == tables(tmp_path / "local")


@pytest.mark.usefixtures("small_bounds")
def test_rotated_captures_and_others_beside_them(tmp_path: Path) -> None:
    parts = cut(CAPTURES / "kraft-two-brokers.pcap", (0.3, 0.6), tmp_path / "parts")
    captures = [parts[0], LONG, *parts[1:]]
    run(captures, tmp_path / "local")
    wanted = tables(tmp_path / "local")
    for shards, size in one_in(2, [(5, 3), (1, 1000)]):
        assert by_stages(captures, tmp_path / f"{shards}", shards=shards, size=size) == wanted


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("sizes", one_in(3, SIZES, 1), ids=str)
def test_sections_change_no_row(sizes: SectionSizes, tmp_path: Path) -> None:
    """Every state that is found without making rows is the one that decoding ends with; flaws are counted once."""
    flawed = [damaged(tmp_path / f"damaged-{seed}.pcap", seed) for seed in range(fewer(1, 3))]
    captures = [LONG, *flawed, *one_in(99, EVERY, 60)]
    for number, capture in enumerate(captures[: fewer(1, 200)]):
        run([capture], tmp_path / f"local-{number}")
        found = by_stages([capture], tmp_path / f"stages-{number}", shards=2, sections=sizes)
        assert found == tables(tmp_path / f"local-{number}"), capture
    assert len(decode([LONG], shards=2, sections=sizes).begins) > 3


@pytest.mark.parametrize(
    ("size", "parallel", "own"),
    [(0, 1, 0), (100, 1, 200), (100, 2, 100), (100, 8, 25), (100, 1000, 0)],
)
def test_when_a_shard_is_divided(size: int, parallel: int, own: int) -> None:
    """All that two cores get: one task keeps both busy."""
    wanted = SectionSizes((own << 30) or LEAST_BYTES, SECTION_BYTES)
    assert section_sizes(size << 30, parallel) == wanted
