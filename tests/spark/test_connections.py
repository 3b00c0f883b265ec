"""Both stages without a session make the rows of the local engine."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.choice import fewer
from tests.spark.both_stages import by_stages, small_bounds
from tests.tables.exports.exported import CAPTURES, cut, run, tables

__all__ = ["small_bounds"]

EVERY = sorted(path for path in CAPTURES.rglob("*.pcap*") if path.suffix in {".pcap", ".pcapng"})
LONG = CAPTURES / "java-codecs.pcap"


def damaged(path: Path, seed: int) -> Path:
    """`LONG` with bits of its later part changed."""
    random, data = Random(seed), bytearray(LONG.read_bytes())
    for _ in range(60):
        data[random.randrange(len(data) // 3, len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    return path


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("capture", EVERY[fewer(7, 1) :: fewer(45, 8)], ids=lambda path: path.stem)
def test_stages_make_the_rows_of_the_local_engine(capture: Path, tmp_path: Path) -> None:
    run([capture], tmp_path / "local")
    assert by_stages([capture], tmp_path / "stages", shards=3, size=7) == tables(tmp_path / "local")


@pytest.mark.extended
@pytest.mark.usefixtures("small_bounds")
def test_rotated_captures_and_others_beside_them(tmp_path: Path) -> None:
    parts = cut(CAPTURES / "kraft-two-brokers.pcap", (0.3, 0.6), tmp_path / "parts")
    captures = [parts[0], LONG, *parts[1:]]
    run(captures, tmp_path / "local")
    wanted = tables(tmp_path / "local")
    assert by_stages(captures, tmp_path / "stages", shards=5, size=3) == wanted


@pytest.mark.usefixtures("small_bounds")
def test_damaged_records(tmp_path: Path) -> None:
    """Exchanges with flaws in their records take other ways; flaws are counted once."""
    for seed in range(fewer(1, 2)):
        capture = damaged(tmp_path / f"damaged-{seed}.pcap", seed)
        run([capture], tmp_path / f"local-{seed}")
        wanted = tables(tmp_path / f"local-{seed}")
        assert wanted["problems"]
        assert by_stages([capture], tmp_path / f"stages-{seed}", shards=2) == wanted
