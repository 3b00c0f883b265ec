"""The share of the traffic that could be decoded, and why the rest could not: one account for all commands.

Traffic is everything that is or may be Kafka: Kafka connections, TLS without keys, and connections with too little data
to judge, including bytes missing from the capture. Connections of other protocols are counted separately; if nothing
was decoded they are included, since Kafka may be among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, in_any
from kafkasniff.analysis.partials import Shape

HIGH: Final = 0.9
"""Share from which on an answer represents the traffic as a whole."""

TLS: Final = "TLS"
"""`connections.protocol` of TLS that was not decrypted."""
OVER_TLS: Final = "Kafka over TLS"

REASONS: Final[Mapping[str, tuple[str, str]]] = {
    "tls": ("TLS without keys", "give the session secrets with --keylog FILE"),
    "client-to-broker-only": (
        "only client → broker was captured",
        "mirror both directions, or capture on the client or the broker",
    ),
    "broker-to-client-only": (
        "only broker → client was captured",
        "mirror both directions, or capture on the client or the broker",
    ),
    "packet-loss": (
        "bytes missing in the capture",
        "capture with a larger buffer (tcpdump -B 65536) or closer to the broker",
    ),
    "snap-length": ("packets cut by the snap length", "capture whole packets (tcpdump -s 0)"),
    "orphan-responses": (
        "responses without their requests",
        "start the capture before the clients connect, and capture both directions",
    ),
    "skipped": (
        "bytes without a Kafka message",
        "read the problems that `decode` shows; name Kafka's ports with --port if others are taken for Kafka",
    ),
    "undecided": ("connections with too little data to judge", "name Kafka's ports with --port"),
    "other-protocols": ("other protocols", "name Kafka's ports with --port if Kafka is among them"),
    "capture-cut": (
        "a capture is truncated, damaged, skipped or interrupted: the size of the missing part is unknown",
        "copy the file again, or stop the capture before you read it",
    ),
    "capture-loss": (
        "packets were dropped on their way into the capture",
        "capture with a larger buffer (tcpdump -B 65536)",
    ),
    "tls-lost": ("TLS whose decryption ended early", "read the problems that `decode` shows"),
    "unread-packets": (
        "packets that could not be read",
        "read the problems that `decode` shows; capture whole packets (tcpdump -s 0)",
    ),
}
"""Reason: description and advice."""

_SIDES: Final = {"client": "client-to-broker-only", "broker": "broker-to-client-only"}
"""By `connections.captured`."""

_KINDS: Final = {
    "capture-cut": "capture-cut",
    "capture-broken": "capture-cut",
    "capture-skipped": "capture-cut",
    "capture-loss": "capture-loss",
    "interface-down": "capture-cut",
    "tls-lost": "tls-lost",
    "link-type-unknown": "unread-packets",
    "packet-cut-headers": "unread-packets",
    "packet-malformed": "unread-packets",
}
"""Problem kinds of captures that show missing data of unknown size, and their reason."""
_GAP: Final = "tcp-gap"
_PREFIX: Final = 4
"""Bytes of a length prefix."""

_SUMS: Final = ("connections", "bytes", "decoded", "skipped", "lost")


class Undecoded(msgspec.Struct, frozen=True):
    """Traffic that could not be decoded, for one reason."""

    reason: str
    """One of `REASONS`."""
    what: str
    """The same in words."""
    connections: int | None
    """Connections affected; null if unknown."""
    bytes: int | None
    """Bytes that could not be decoded; null if unknown."""
    share: float | None
    """`bytes` divided by the traffic's bytes; null if unknown."""
    advice: str
    """What to do."""


class OtherProtocols(msgspec.Struct, frozen=True):
    """Connections that are not Kafka."""

    connections: int
    """Number of connections."""
    bytes: int
    """Their bytes."""
    protocols: list[str]
    """Names of the recognised protocols, for example `HTTP`."""


class VisibleTraffic(msgspec.Struct, frozen=True):
    """How much of the traffic could be decoded."""

    share: float | None
    """Decoded bytes divided by the traffic's bytes, from 0 to 1; null if unknown or without traffic."""
    connections: int
    """Connections that are or may be Kafka."""
    connections_decoded: int
    """Those of them with decoded messages."""
    bytes: int
    """Bytes on these connections, including those missing from the capture."""
    bytes_decoded: int
    """Bytes of decoded messages."""
    undecoded: list[Undecoded]
    """Reasons, the largest first; those of unknown size last."""
    not_kafka: OtherProtocols
    """Connections of other protocols."""
    known: bool = True
    """False for an export without the table `connections`: the share is unknown."""

    @property
    def is_high(self) -> bool:
        """Whether the traffic was decoded as a whole: nothing of unknown size is missing, and hardly anything else."""
        return not self.unmeasured and (not self.known or (self.share is not None and self.share >= HIGH))

    @property
    def is_one_sided(self) -> bool:
        """Whether only one direction was captured on some connections."""
        return any(undecoded.reason in _SIDES.values() for undecoded in self.undecoded)

    @property
    def unmeasured(self) -> list[Undecoded]:
        """Missing data of unknown size."""
        return [undecoded for undecoded in self.undecoded if undecoded.bytes is None]


class Visibility(Accumulator[Parameters]):
    """Bytes and connections by outcome."""

    name: ClassVar[str] = "visibility"

    def reads(self) -> Mapping[str, TableReading]:
        """Tables with their needed columns."""
        own = ("time_ns", "verdict", "protocol", "captured", "client_bytes", "broker_bytes")
        return {
            "exchanges": TableReading(("status", "response_size")),
            "connections": TableReading((*own, "bytes_decoded", "bytes_skipped", "bytes_lost"), optional=True),
            "problems": TableReading(("kind", "bytes"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        """The partial answers by name."""
        text = tuple((name, pa.string()) for name in ("verdict", "protocol", "captured"))
        sums: Any = tuple((name, pa.int64(), "sum") for name in _SUMS)
        times: Any = (("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
        counts: Any = (("count", pa.int64(), "sum"), ("bytes", pa.int64(), "sum"))
        return {
            "connections": Shape(keys=text, measures=(*sums, *times)),
            "exchanges": Shape(keys=(("orphan", pa.bool_()),), measures=counts),
            "problems": Shape(keys=(("kind", pa.string()),), measures=counts),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        """Take rows of a table."""
        if table == "connections":
            counts = {name: pc.fill_null(column(batch, f"bytes_{name}"), 0) for name in ("decoded", "skipped", "lost")}
            size = pc.add(column(batch, "client_bytes"), column(batch, "broker_bytes"))
            self.parts["connections"].add(
                {
                    **{name: column(batch, name) for name in ("verdict", "protocol", "captured")},
                    "connections": pa.array([1] * batch.num_rows, pa.int64()),
                    "bytes": pc.add(pc.fill_null(size, 0), counts["lost"]),
                    **counts,
                    "first": column(batch, "time_ns"),
                    "last": column(batch, "time_ns"),
                }
            )
        elif table == "problems":
            self._count("problems", {"kind": column(batch, "kind")}, pc.fill_null(column(batch, "bytes"), 0))
        else:
            orphan = in_any(batch, "status", ["orphan"])
            size = pc.add(pc.fill_null(column(batch, "response_size"), 0), _PREFIX)
            self._count("exchanges", {"orphan": orphan}, size)

    def _count(self, part: str, keys: dict[str, Any], size: pa.Array) -> None:
        self.parts[part].add({**keys, "count": pa.array([1] * len(size), pa.int64()), "bytes": size})

    def result(self) -> pa.Table:
        """Undecoded traffic, by reason."""
        rows = [msgspec.structs.asdict(undecoded) for undecoded in self.visible().undecoded]
        return pa.Table.from_pylist(rows, schema=_ANSWER)

    def span(self) -> tuple[int | None, int | None]:
        """Times of the first and the last connection."""
        table = self.parts["connections"].table()
        return pc.min(table.column("first")).as_py(), pc.max(table.column("last")).as_py()

    def visible(self) -> VisibleTraffic:
        """The rows so far."""
        sums = _Sums()
        for row in self.parts["connections"].table().to_pylist():
            sums.connection(row)
        problems = {row["kind"]: row for row in self.parts["problems"].table().to_pylist()}
        exchanges = {row["orphan"]: row for row in self.parts["exchanges"].table().to_pylist()}
        orphans = exchanges.get(True, {"count": 0, "bytes": 0})
        return sums.visible(problems, orphans, exchanges=sum(row["count"] for row in exchanges.values()))


_ANSWER: Final = pa.schema(
    [
        ("reason", pa.string()),
        ("what", pa.string()),
        ("connections", pa.int64()),
        ("bytes", pa.int64()),
        ("share", pa.float64()),
        ("advice", pa.string()),
    ]
)


class _Sums:
    """Connections and bytes by reason, while the rows are added up."""

    def __init__(self) -> None:
        self.found: dict[str, list[int]] = {}
        """Connections and bytes by reason."""
        self.connections = self.decoded_on = self.size = self.decoded = 0
        self.one_sided = 0
        """Bytes of responses whose requests were not captured on their connections."""
        self.lost = [0, 0]
        self.other = [0, 0]
        self.protocols: set[str] = set()

    def add(self, reason: str, connections: int, size: int) -> None:
        if size > 0:
            entry = self.found.setdefault(reason, [0, 0])
            entry[0] += connections
            entry[1] += size

    def connection(self, row: dict[str, Any]) -> None:
        """Take connections of one kind."""
        count, size, protocol = row["connections"], row["bytes"], row["protocol"]
        if row["verdict"] == "not_kafka" and protocol != TLS:
            self.other[0] += count
            self.other[1] += size
            if protocol is not None:
                self.protocols.add(protocol)
            return
        self.connections += count
        side = _SIDES.get(row["captured"])
        if row["verdict"] != "kafka":
            self.size += size
            self.add("tls" if protocol == TLS else side if side and row["lost"] else "undecided", count, size)
            return
        # The overhead of TLS around decrypted messages is not Kafka traffic.
        skipped = 0 if protocol == OVER_TLS else row["skipped"]
        self.size += row["decoded"] + skipped + row["lost"]
        if row["captured"] == "broker":
            self.one_sided += row["decoded"]
            self.add(_SIDES["broker"], count, row["decoded"] + skipped + row["lost"])
            return
        self.decoded_on += count
        self.decoded += row["decoded"]
        self.add("skipped", count, skipped)
        if side is not None:
            self.add(side, count, row["lost"])
        elif row["lost"]:
            self.lost[0] += count
            self.lost[1] += row["lost"]

    def visible(
        self, problems: dict[str, dict[str, Any]], orphans: dict[str, Any], *, exchanges: int
    ) -> VisibleTraffic:
        """The answer."""
        # Bytes beyond a snap length are not a gap. Without problems, as in exports without that table, the snap length
        # is unknown.
        gaps = problems.get(_GAP, {"bytes": 0})["bytes"] if problems else self.lost[1]
        missing = min(self.lost[1], gaps)
        self.add("packet-loss", self.lost[0], missing)
        self.add("snap-length", self.lost[0], self.lost[1] - missing)
        unasked = min(max(orphans["bytes"] - self.one_sided, 0), self.decoded)
        self.decoded -= unasked
        self.add("orphan-responses", 0, unasked)
        not_kafka = OtherProtocols(self.other[0], self.other[1], sorted(self.protocols))
        if not self.decoded:
            self.connections += self.other[0]
            self.size += self.other[1]
            self.add("other-protocols", *self.other)
        undecoded = [
            Undecoded(
                reason,
                self._what(reason),
                # For orphans, gaps and cut packets only the bytes are known, not the connections.
                count if reason not in ("orphan-responses", "packet-loss", "snap-length", "skipped") else None,
                size,
                size / self.size if self.size else None,
                REASONS[reason][1],
            )
            for reason, (count, size) in self.found.items()
        ]
        undecoded.sort(key=lambda one: (-(one.bytes or 0), one.reason))
        for reason in dict.fromkeys(_KINDS[kind] for kind in sorted(problems) if kind in _KINDS):
            undecoded.append(Undecoded(reason, REASONS[reason][0], None, None, None, REASONS[reason][1]))
        known = bool(self.connections or not exchanges)
        return VisibleTraffic(
            share=self.decoded / self.size if self.size else None,
            connections=self.connections,
            connections_decoded=self.decoded_on,
            bytes=self.size,
            bytes_decoded=self.decoded,
            undecoded=undecoded,
            not_kafka=not_kafka,
            known=known,
        )

    def _what(self, reason: str) -> str:
        what = REASONS[reason][0]
        return (
            f"{what} ({', '.join(sorted(self.protocols))})" if reason == "other-protocols" and self.protocols else what
        )
