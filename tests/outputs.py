"""Everything that an export contains, and everything that a live run shows: to look for what must not be there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.live.metrics import Metrics
from kafkasniff.live.state import ViewState
from kafkasniff.live.top import TopModel
from tests.craft.batches import batch
from tests.craft.packet import Packet
from tests.live.scenes import drawn, opened

VIEWS = (*(ViewState(table=table) for table in range(6)), opened(("connection", 1)))


def leaves(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        yield value.encode()
    elif isinstance(value, dict):
        for one in value.values():
            yield from leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one)


def content(folder: Path) -> bytes:
    """Content of an export: its tables, decompressed, and all other files unchanged, without its state."""
    found = []
    for one in sorted(folder.rglob("*")):
        if one.suffix == ".parquet":
            found += leaves(pq.ParquetFile(one).read().to_pylist())
        elif one.is_file() and one.suffix != ".state":
            found.append(one.read_bytes())
    assert found
    return b"\n".join(found)


def watched(packets: Sequence[Packet]) -> tuple[str, str]:
    """The screens of a live run, and its metrics."""
    inspector, top, metrics = Inspector(exchanges=True, connections=True), TopModel(), Metrics()
    for event in (*inspector.feed(batch(packets)), *inspector.close()):
        top.take(event)
        metrics.take(event)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    screens = "".join(drawn(top.snapshot(focus=view.focus), view, 200, 60) for view in VIEWS)
    return screens, generate_latest(registry).decode()
