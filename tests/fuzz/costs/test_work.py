"""The cost of a byte for each pair at its extreme numbers, which no machine changes: lines of Python in kafkasniff
(quadratic work shows), and memory, which also shows what Arrow does."""

from __future__ import annotations

import ctypes
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from kafkasniff.cli.environment import Exit
from tests.choice import ALL, one_in
from tests.cli.console import kafkasniff
from tests.fuzz.costs.findings import topics_errors
from tests.fuzz.costs.pairs import PAIRS
from tests.steps import steps

SMALL: Final = 1 << (14 if ALL else 13)
MORE: Final = 4
MOST: Final = 7
"""Times as many lines that this many times as much input may take; with the square of it they would be 16."""
MOST_BYTES: Final = 32 << 20
"""Memory that is asked for at once over the larger input; what is kept of each of its bytes is some hundreds."""

FEW: Final = (
    *("gaps-outstanding", "nested-records", "sessions-partitions", "datagrams-fragments", "records-odd"),
    "labels-depth",
)
"""Those of the default run: reading, TCP, records and sessions."""
CHECKED: Final = (
    *("topics-errors", "clients-errors", "attempts-endpoints", "segments-overlaps", "members-groups", "leaders-topics"),
    *("connections-unanswered", "producers-batches", "gaps-outstanding", "requests-early", "names-requests"),
    *("names-topics", "dates-rows", "sessions-partitions", "connections-overhead", "problems-messages"),
)
"""Those of which detectors keep something; the others are covered by `decode`."""


def of_package(file: str) -> bool:
    """Generated methods have no file."""
    return "kafkasniff" in file or file.startswith("<")


def decode(path: Path) -> None:
    assert kafkasniff("decode", "-q", "--jobs", 1, "--format", "json", path).code in (Exit.OK, Exit.NOTHING)


def check(path: Path) -> None:
    assert kafkasniff("check", "-q", path).code in (Exit.OK, Exit.NOTHING, Exit.FINDINGS)


def larger(name: str, folder: Path, command: Callable[[Path], None]) -> Path:
    """A capture of a pair for which a command runs no more lines than its size explains."""
    paths = []
    for number, size in enumerate((SMALL, MORE * SMALL)):
        paths.append(folder / f"{number}.pcap")
        paths[-1].write_bytes(PAIRS[name](size))
    # Compilation and imports on first use do not count.
    command(paths[0])
    little, much = (steps(lambda path=path: command(path), of_package) for path in paths)
    sizes = [path.stat().st_size for path in paths]
    assert much * sizes[0] * MORE <= MOST * little * sizes[1], f"{much:,} lines, of a quarter {little:,}"
    return paths[1]


@pytest.mark.extended
@pytest.mark.parametrize("name", CHECKED)
def test_work_of_check_is_linear(name: str, tmp_path: Path) -> None:
    larger(name, tmp_path, check)


KINDS: Final = {"Fetch": 1, "Metadata": 2, "ShareFetch": 3}
"""Exchanges with many topics (`findings.topics_errors`)."""
READERS: Final[dict[str, tuple[object, ...]]] = {
    "check": ("check", "-q"),
    **{name: ("analyze", name, "-q") for name in ("topic", "errors", "lag")},
}
MOST_COLUMNS: Final = 40 << 20
"""Memory of columns: a copy of each exchange for each of its topics takes several times as much."""


@pytest.mark.parametrize(
    ("command", "kind"),
    one_in(6, [*(("check", kind) for kind in KINDS), *((reader, "Fetch") for reader in READERS if reader != "check")]),
)
def test_exchanges_are_not_copied_for_each_of_their_topics(command: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "wide.pcap"
    path.write_bytes(topics_errors(160_000, 2_400, KINDS[kind], 0))
    usual, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    # Never freed: constants that Arrow makes with it may outlive everything else.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
    pa.set_memory_pool(pool)
    try:
        assert kafkasniff(*READERS[command], path).code in (Exit.OK, Exit.NOTHING, Exit.FINDINGS)
    finally:
        pa.set_memory_pool(usual)
    assert pool.max_memory() < MOST_COLUMNS, f"{pool.max_memory():,} bytes"


@pytest.mark.parametrize("name", PAIRS if ALL else FEW)
def test_work_is_linear_and_memory_bounded(name: str, tmp_path: Path) -> None:
    path = larger(name, tmp_path, decode)
    tracemalloc.start()
    try:
        decode(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES, f"{peak:,} bytes"
