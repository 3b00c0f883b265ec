"""Messages whose bytes are not what their sender says: malformed bodies, and batches with a wrong checksum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, exploded, named, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Finding
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, Tally, clients
from kafkasniff.analysis.detectors.wording import client, plural
from kafkasniff.text.printable import word

_UNREADABLE: Final = pa.array(["array-too-long", "body-truncated", "length-negative", "varint-too-long"])
"""Problems that end a body before its end."""
_CUT: Final = pa.array(["body-let-go", "body-skipped", "frame-incomplete", "stream-cut"])
"""Not all bytes were there to be decoded."""
_KIND: Final = "crc-mismatch"
_WRITES: Final = "Produce"


class MalformedThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `MalformedMessages`."""

    at_least: Annotated[int, Meta(ge=1, description="Report from this many malformed messages.")] = 1


class MalformedMessages(Detector[MalformedThresholds]):
    """Requests and responses that are captured whole, but cannot be decoded to their end as their API and version say.

    Brokers close the connection at such a request (InvalidRequestException), clients at such a response.

    Caveats: forks of Kafka may have other fields in an API of the same number. An exchange does not say whether its
    request or its response is malformed; `decode -v` does.
    """

    name: ClassVar[str] = "malformed-messages"
    summary: ClassVar[str] = "Messages that do not follow the protocol of the version that they name."
    parameters_type = MalformedThresholds

    _malformed = Tally("malformed", (*CLIENT, *BROKER, ("api", pa.string()), ("api_version", pa.int16())))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "api_version", *CLIENT_COLUMNS, "broker_ip", "broker_port", "problems")
        return {"exchanges": TableReading((*ORDER, *own))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        kinds = column(batch, "problems")
        flat, rows = pc.list_flatten(kinds).cast(pa.string()), pc.list_parent_indices(kinds)
        cut = pc.unique(rows.filter(pc.is_in(flat, value_set=_CUT)))
        unreadable = pc.and_(pc.is_in(flat, value_set=_UNREADABLE), pc.invert(pc.is_in(rows, value_set=cut)))
        places, firsts = np.unique(rows.filter(unreadable).to_numpy(), return_index=True)
        batch = batch.take(pa.array(places))
        keys = {name: column(batch, name) for name in ("api", "api_version")}
        notes = flat.filter(unreadable).take(pa.array(firsts))
        self._malformed.add(self, batch, {**clients(batch, broker=True), **keys}, notes)

    def findings(self) -> Iterator[Finding]:
        for row, evidence in self._malformed.rows(self, lambda row: row["count"] >= self.thresholds.at_least):
            what = plural(row["count"], f"{word(row['api'])} v{row['api_version']} exchange")
            yield self.row_finding(
                row,
                evidence,
                "warning",
                f"{what} of {client(row)} with {row['broker']} {'has' if row['count'] == 1 else 'have'} a malformed "
                "request or response: its body does not follow the protocol",
                meaning=(
                    "All bytes are in the capture, but fields end beyond the message, or have impossible lengths. The "
                    "sender encodes another version than the header names, has a bug, or something on the way changes "
                    "data. Brokers and clients close the connection at such a message."
                ),
                advice=(
                    "Look at the fields before the problem (decode -v, --hex) and compare them with the definition "
                    "(kafkasniff api). If several clients are affected, look for a proxy, or a fork of Kafka."
                ),
                subject=("client_id", "client_ip", "broker", "api", "api_version"),
                values={},
            )


class DamagedThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `DamagedRecords`."""

    at_least: Annotated[int, Meta(ge=1, description="Report from this many messages with a damaged batch.")] = 1


class DamagedRecords(Detector[DamagedThresholds]):
    """Record batches whose checksum (CRC) does not match their bytes, in Produce requests and Fetch responses.

    Brokers refuse such batches of producers (CORRUPT_MESSAGE), but send what their log has without a check. Consumers
    stop at it.

    Caveats: the topic is that of the message's first partition with records.
    """

    name: ClassVar[str] = "damaged-records"
    summary: ClassVar[str] = "Record batches with a wrong checksum: damaged on a disk, on the way, or by a client."
    parameters_type = DamagedThresholds

    _damaged = Tally("damaged", (*CLIENT, *BROKER, ("api", pa.string()), ("topic", pa.string())))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *CLIENT_COLUMNS, "broker_ip", "broker_port", "problems", "partitions")
        return {"exchanges": TableReading((*ORDER, *own))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        kinds = column(batch, "problems")
        damaged = pc.equal(pc.list_flatten(kinds).cast(pa.string()), _KIND)
        places = pc.unique(pc.list_parent_indices(kinds).filter(damaged))
        batch = batch.take(places)
        if not batch.num_rows:
            return
        rows = batch.append_column("row", pa.array(np.arange(batch.num_rows)))
        parts = named(exploded(rows, ["row"]))
        parts = only(parts, pc.greater(column(parts, "record_count"), 0))
        numbers, firsts = np.unique(column(parts, "row").to_numpy(), return_index=True)
        topics = np.full(batch.num_rows, None, object)
        topics[numbers] = np.array(column(parts, "topic").take(pa.array(firsts)).to_pylist(), object)
        keys = {"api": column(batch, "api"), "topic": pa.array(topics, pa.string())}
        self._damaged.add(self, batch, {**clients(batch, broker=True), **keys})

    def findings(self) -> Iterator[Finding]:
        for row, evidence in self._damaged.rows(self, lambda row: row["count"] >= self.thresholds.at_least):
            sent = row["api"] == _WRITES
            what = plural(row["count"], f"{word(row['api'])} {'request' if sent else 'response'}")
            to = f"of {client(row)} to {row['broker']}" if sent else f"of {row['broker']} to {client(row)}"
            topic = "" if row["topic"] is None else f" for topic {word(row['topic'])}"
            yield self.row_finding(
                row,
                evidence,
                "error",
                f"{what} {to}{topic} with a damaged record batch: its checksum does not match its bytes",
                meaning=(
                    "The client or something on the way, such as a network card or proxy, damages batches. The broker "
                    "checks them and refuses them (CORRUPT_MESSAGE); retries help only if the damage is rare."
                    if sent
                    else "Brokers send batches as their log has them, so the log of this broker is damaged (its disk, "
                    "memory or file system), or something on the way damages the data. Consumers and followers check "
                    "each batch: they stop here, and come back to it after a restart."
                ),
                advice=(
                    "Find out whether all clients of this machine or version are affected, and compare with a capture "
                    "at the other end: if the checksum is right there, the network damages the data."
                    if sent
                    else "Check the log segment on the broker (kafka-dump-log --deep-iteration) and its disk. If "
                    "another replica is intact, move the leader there and let this broker fetch the partition again; "
                    "otherwise consumers have to seek to the offset after the batch."
                ),
                subject=("client_id", "client_ip", "broker", "topic"),
                values={"api": row["api"]},
            )
