"""Captures into a consumer of rows: which tables, which bodies, and what stops the reading."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkasniff.analysis.security import SecurityView
from kafkasniff.analysis.visibility import OtherProtocols, Undecoded, VisibleTraffic
from kafkasniff.cli.environment import Interrupted
from kafkasniff.cli.running.counted_captures import CountedCaptures, say_notes
from kafkasniff.errors import CaptureError, UsageError
from kafkasniff.filters.expression import parse_filter
from kafkasniff.model import Exchange, Message
from kafkasniff.tables.exports.transport import TABLE as TRANSPORT
from tests.cli.console import environment
from tests.craft.write import write_pcap
from tests.enrich import talks

OPTIONS: dict[str, Any] = {"ports": (), "max_frame": None, "keylog": None, "memory": 1 << 30, "topic_ids": None}
COUNTS = {"ApiVersions": 2, "Metadata": 2, "Produce": 12, "Fetch": 8}


class Rows:
    """Keeps what it is given; `bodies`: the API whose bodies it wants."""

    def __init__(self, bodies: str | None = None) -> None:
        self.tables: list[str] = []
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.bodies = bodies
        self.interrupts = False

    def has(self, table: str) -> None:
        self.tables.append(table)

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        self.rows.setdefault(table, []).extend(batch.to_pylist())
        if self.interrupts:
            raise Interrupted(2)

    def wants_body(self, message: Message) -> bool:
        return message.api == self.bodies

    def apis(self) -> Counter[str]:
        return Counter(row["api"] for row in self.rows.get("exchanges", []))


def read(
    *captures: Path | str, predicate: str | None = None, taker: Rows | None = None, stdin: bytes = b"", **more: Any
) -> tuple[Rows, CountedCaptures]:
    found = Rows() if taker is None else taker
    options = {**OPTIONS, **more.pop("options", {})}
    parsed = None if predicate is None else parse_filter(predicate)
    reading = CountedCaptures(environment(stdin), found, options, parsed, quiet=True, **more)
    reading.read(tuple(map(str, captures)))
    return found, reading


def test_all_rows(capture: Path) -> None:
    rows, reading = read(capture)
    assert rows.apis() == COUNTS
    assert rows.tables == ["exchanges", "records", "connections", "problems"]
    assert not reading.broken
    assert reading.names is not None
    # Nobody asked for bodies.
    assert {row["request_body"] for row in rows.rows["exchanges"]} == {None}


def test_only_some_tables(capture: Path) -> None:
    rows, _ = read(capture, tables=("connections",))
    assert rows.tables == list(rows.rows) == ["connections"]


def test_bodies_that_are_wanted(capture: Path) -> None:
    rows, _ = read(capture, taker=Rows("Metadata"))
    assert {row["api"] for row in rows.rows["exchanges"] if row["request_body"] is not None} == {"Metadata"}


def test_standard_input(capture: Path) -> None:
    rows, _ = read("-", stdin=capture.read_bytes())
    assert rows.apis() == COUNTS


def test_records_may_be_left_out(capture: Path) -> None:
    rows, _ = read(capture, options={"no_records": True})
    assert "records" not in {*rows.tables, *rows.rows}
    with pytest.raises(UsageError, match="refers to records, which --no-records skips"):
        read(capture, predicate='record.key == "a"', options={"no_records": True})


@pytest.mark.parametrize(
    ("predicate", "counts"),
    [
        ('api == "Fetch"', {"Fetch": 8}),
        ('record.key == "key-3"', {"Produce": 1, "Fetch": 1}),
        ('topic == "nothing"', {}),
    ],
)
def test_filters(capture: Path, predicate: str, counts: dict[str, int]) -> None:
    assert read(capture, predicate=predicate)[0].apis() == counts


def test_filters_on_topics_know_names_that_come_later(tmp_path: Path) -> None:
    """They are learned in a first reading."""
    packets = [*talks.consumer().packets, *talks.admin().packets]
    path = write_pcap(tmp_path / "ids.pcap", packets)
    rows, _ = read(path, predicate='topic == "orders"')
    # In capture order, the name comes after all of these requests.
    assert rows.apis()["Fetch"] >= 2
    assert read(path, predicate='topic == "payments"')[0].apis()["Fetch"] == 0


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    """A first reading would leave nothing of it."""
    data = write_pcap(tmp_path / "ids.pcap", talks.both()).read_bytes()
    rows, _ = read("-", stdin=data, predicate='topic == "orders"')
    assert rows.apis()["Metadata"] >= 1


def test_events_and_transport_on_the_side(capture: Path) -> None:
    events: list[Any] = []
    rows, _ = read(capture, events=events.extend, transport=True)
    assert sum(type(event) is Exchange for event in events) == sum(COUNTS.values())
    assert rows.rows[TRANSPORT]


def test_security_sees_the_events_as_well(capture: Path) -> None:
    events: list[Any] = []
    security = SecurityView()
    _, reading = read(capture, events=events.extend, security=security)
    assert sum(type(event) is Exchange for event in events) == sum(COUNTS.values())
    assert not reading.broken


def test_a_truncated_capture(capture: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(capture.read_bytes()[:-3])
    rows, reading = read(cut)
    assert reading.broken
    assert "capture-cut" in {row["kind"] for row in rows.rows["problems"]}


def test_a_missing_capture(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="nowhere"):
        read(tmp_path / "nowhere.pcap")


@pytest.mark.parametrize("quiet", [True, False])
def test_an_interrupted_reading(capture: Path, quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer covers the packets so far, then the interrupt is raised again."""
    monkeypatch.setattr("kafkasniff.tables.exports.stager.MAX_ROWS", 5)
    rows, world = Rows(), environment()
    rows.interrupts = True
    reading = CountedCaptures(world, rows, OPTIONS, None, quiet=quiet)
    reading.read((str(capture), str(capture)))
    assert reading.interrupt is not None
    assert not reading.broken
    rows.interrupts = False
    with pytest.raises(Interrupted):
        reading.end()
    assert isinstance(world.stderr, io.StringIO)
    assert ("covers only what was read" in world.stderr.getvalue()) != quiet


def test_the_end_of_a_complete_reading(capture: Path) -> None:
    _, reading = read(capture)
    reading.end()


def test_notes_are_on_stderr() -> None:
    """And missing data of unknown size, but not what has a share of its own."""
    reasons = [
        Undecoded("capture-loss", "packets were dropped", None, None, None, "capture with a larger buffer"),
        Undecoded("tls", "TLS without secrets", 3, 1000, 0.5, "give the secrets"),
    ]
    visible = VisibleTraffic(0.5, 6, 3, 2000, 1000, reasons, OtherProtocols(0, 0, []))
    world = environment()
    say_notes(world, ["some are missing"], visible)
    assert isinstance(world.stderr, io.StringIO)
    assert [line.partition(": ")[2] for line in world.stderr.getvalue().splitlines()] == [
        "some are missing",
        "not decoded: packets were dropped; capture with a larger buffer",
    ]
