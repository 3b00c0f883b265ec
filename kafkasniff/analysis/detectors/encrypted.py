"""Trouble of TLS connections that are not decrypted: stalls, cuts and slow handshakes, judged by who spoke when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import broker_endpoint, column, in_any, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.wording import elapsed, plural, some
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.visibility import TLS
from kafkasniff.tables.rows.transport import TABLE

MAX_CONNECTIONS: Final = 1 << 17
"""Maximum number of connections examined, the earliest."""
HANDSHAKES: Final = 5
"""Handshakes from which their median says something of the broker."""

_KEYS: Final = (
    ("connection_id", pa.int64()),
    ("time_ns", pa.int64()),
    ("end_time_ns", pa.int64()),
    ("client_ip", pa.string()),
    ("tls_handshake_us", pa.int64()),
    ("tls_answers", pa.int64()),
    ("tls_unanswered_us", pa.int64()),
)
_ENDS: Final = (("connection_id", pa.int64()), ("ended_by", pa.string()), ("ended_with", pa.string()))
_LOGS: Final = (
    "Look at the broker's log and its metrics at this time. With a key log, kafkasniff shows the requests (`kafkasniff "
    "help tls`)."
)


class EncryptedThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `EncryptedTrouble`."""

    silent: Annotated[
        Duration, Meta(ge=0, description="A stall: the broker sends nothing for this long after data of a client.")
    ] = 10_000_000_000
    handshake: Annotated[Duration, Meta(ge=0, description="Handshakes are slow if their median is at least this.")] = (
        1_000_000_000
    )
    at_least: Annotated[
        int, Meta(ge=1, description="This many connections to a broker are a warning; fewer are a note.")
    ] = 3


class EncryptedTrouble(Detector[EncryptedThresholds]):
    """Stalls, cuts and slow handshakes of TLS connections that are not decrypted.

    `trouble` in the subject is one of:

    - `stalled`: the client's last data got no answer until the end of the connection or the capture.
    - `cut`: likewise, but the broker's side closed or reset the connection. It had answered before.
    - `handshakes`: the median handshake takes long. Brokers whose CPU is busy, or whose network threads are, are slow
      in this first.

    Caveats: requests are not visible. A producer with `acks=0` gets no answers, and a member that joins a group may
    wait for minutes, so a few stalls are only a note. A broker that sends an alert before it closes is not counted.
    """

    name: ClassVar[str] = "encrypted-trouble"
    summary: ClassVar[str] = "Stalls, cuts and slow handshakes of TLS connections without keys."
    parameters_type = EncryptedThresholds
    by_packets: ClassVar[str] = "who ended TLS connections is unknown"

    def reads(self) -> Mapping[str, TableReading]:
        own = (*(name for name, _ in _KEYS), "broker_ip", "broker_port", "protocol")
        return {
            "connections": TableReading(own, optional=True),
            TABLE: TableReading(tuple(name for name, _ in _ENDS), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        keys = (*_KEYS, ("broker", pa.string()))
        order: Any = {"order": ("connection_id",), "keep": "earliest", "bound": MAX_CONNECTIONS}
        return {
            "sealed": Shape(keys=keys, order=("time_ns", "connection_id"), keep="earliest", bound=MAX_CONNECTIONS),
            "ends": Shape(keys=_ENDS, **order),
        }

    def update(self, batch: pa.RecordBatch, table: str = "connections") -> None:
        if table == TABLE:
            batch = only(batch, in_any(batch, "ended_by", ["broker"]))
            self.parts["ends"].add({name: column(batch, name) for name, _ in _ENDS})
            return
        timed = pc.or_(pc.is_valid(column(batch, "tls_handshake_us")), pc.is_valid(column(batch, "tls_unanswered_us")))
        batch = only(batch, pc.and_(in_any(batch, "protocol", [TLS]), timed))
        columns = {name: column(batch, name) for name, _ in _KEYS}
        self.parts["sealed"].add({**columns, "broker": broker_endpoint(batch)})

    def findings(self) -> Iterator[Finding]:
        ended = {row["connection_id"]: row["ended_with"] for row in self.parts["ends"].table().to_pylist()}
        brokers: dict[str, list[dict[str, Any]]] = {}
        for row in self.parts["sealed"].table().to_pylist():
            brokers.setdefault(row["broker"], []).append(row)
        for broker, rows in brokers.items():
            rows.sort(key=lambda row: (row["time_ns"] or 0, row["connection_id"]))
            waiting = [row for row in rows if row["tls_unanswered_us"] is not None]
            # Without any answer the handshake may have failed.
            cut = [row for row in waiting if row["connection_id"] in ended and row["tls_answers"]]
            stalled = [row for row in waiting if row["tls_unanswered_us"] * 1000 >= self.thresholds.silent]
            stalled = [row for row in stalled if row["connection_id"] not in ended]
            if stalled:
                yield self._stalled(broker, stalled)
            if cut:
                yield self._cut(broker, cut, {ended[row["connection_id"]] for row in cut})
            shaken = [row for row in rows if row["tls_handshake_us"] is not None]
            usual = median(row["tls_handshake_us"] for row in shaken) * 1000 if shaken else 0
            if len(shaken) >= HANDSHAKES and usual >= self.thresholds.handshake:
                yield self._slow(broker, shaken, usual)

    def _stalled(self, broker: str, rows: list[dict[str, Any]]) -> Finding:
        longest = max(row["tls_unanswered_us"] for row in rows) * 1000
        return self._of(
            "stalled",
            self._severity(rows),
            f"{plural(len(rows), 'TLS connection')} of {_clients(rows)} to {broker} got no answer to their last data, "
            f"for up to {elapsed(longest)} (estimated without keys)",
            "The broker does not answer, or its answers do not arrive. Producers with acks=0 expect none, and members "
            "that join a group wait for the others.",
            _LOGS,
            rows,
            {"longest_ms": longest / 1e6},
        )

    def _cut(self, broker: str, rows: list[dict[str, Any]], ways: set[str]) -> Finding:
        how = "reset" if ways == {"rst"} else "closed" if ways == {"fin"} else "closed or reset"
        return self._of(
            "cut",
            self._severity(rows),
            f"{broker} {how} {plural(len(rows), 'TLS connection')} of {_clients(rows)} instead of an answer to their "
            "last data",
            "The broker ended, or refused what it was asked, or something in between dropped the connection.",
            _LOGS,
            rows,
            {},
        )

    def _slow(self, broker: str, rows: list[dict[str, Any]], usual: float) -> Finding:
        return self._of(
            "handshakes",
            "warning",
            f"TLS handshakes with {broker} are slow: {elapsed(usual)} in the median of {len(rows):,}",
            "Each new connection waits this long before its first request.",
            "Check the CPU of the broker and its network threads (num.network.threads, the metric "
            "NetworkProcessorAvgIdlePercent), and which clients connect often.",
            rows,
            {"median_ms": usual / 1e6},
        )

    def _severity(self, rows: list[dict[str, Any]]) -> Severity:
        return "warning" if len(rows) >= self.thresholds.at_least else "note"

    def _of(  # noqa: PLR0917 - the parts of a finding
        self,
        trouble: str,
        severity: Severity,
        title: str,
        meaning: str,
        advice: str,
        rows: list[dict[str, Any]],
        values: dict[str, Any],
    ) -> Finding:
        return self.finding(
            severity,
            title,
            meaning=meaning,
            advice=advice,
            subject={"broker": rows[0]["broker"], "trouble": trouble},
            count=len(rows),
            first=min((row["time_ns"] for row in rows if row["time_ns"] is not None), default=None),
            last=max((row["end_time_ns"] for row in rows if row["end_time_ns"] is not None), default=None),
            evidence=tuple(Evidence(row["connection_id"], None, row["time_ns"], "") for row in rows[:MAX_EVIDENCE]),
            values={"connections": len(rows), **values},
        )


def _clients(rows: list[dict[str, Any]]) -> str:
    return some(sorted({row["client_ip"] for row in rows}))
