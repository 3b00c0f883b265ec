"""How long packets take between clients and brokers, by the fastest round trip of each connection.

Kernels answer handshakes and acknowledge data whatever their programs do, so a fast broker does not make these times
shorter, nor a slow one longer.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator
from kafkasniff.analysis.columns import broker_endpoint, column, in_any, integers
from kafkasniff.analysis.detectors.tally import BROKER
from kafkasniff.analysis.partials import Shape

FAR_NS: Final = 200_000_000
"""A round trip this long is trouble: it is more than between any two places on Earth with a good network."""
SEVERAL: Final = 2
"""Connections whose fastest round trip is long, while that of others is short, show a queue on the path."""
ENOUGH: Final = 20
"""Packets of a connection without a handshake: an acknowledgement of few may have been delayed."""
PAIR: Final = (("client_ip", pa.string()), *BROKER)
"""A client's address and a broker."""
WAY_COLUMNS: Final = (
    *("client_ip", "broker_ip", "broker_port", "opening", "broker_round_trip_us", "client_round_trip_us"),
    *("client_packets", "broker_packets", "client_data", "broker_data"),
    *("client_again", "broker_again", "client_lost", "broker_lost"),
)
"""Columns of the table `transport` that are needed."""


class Way(msgspec.Struct, frozen=True):
    """Between a client's address and a broker. Times in ns, of the round trip."""

    to_broker: int
    """The shortest time from the capture point to the broker; 0: unknown."""
    least: int
    """The same for the whole way, by the fastest connection."""
    most: int
    """By the slowest connection: its fastest round trip."""
    slow: int
    """Number of connections whose fastest round trip is at least `FAR_NS`."""
    again: int
    """Number of segments that were sent again, or lost before the capture point."""

    @property
    def far(self) -> bool:
        """It always takes long."""
        return self.least >= FAR_NS

    @property
    def queued(self) -> bool:
        """It takes longer at times, although nothing is lost."""
        return self.slow >= SEVERAL and self.most - self.least >= FAR_NS


def ways_shapes() -> dict[str, Shape]:
    """For `Detector.shapes`."""
    measures: Any = (
        ("to_broker_us", pa.int64(), "min"),
        ("least_us", pa.int64(), "min"),
        ("most_us", pa.int64(), "max"),
        ("slow", pa.int64(), "sum"),
        ("again", pa.int64(), "sum"),
    )
    return {"ways": Shape(keys=PAIR, measures=measures)}


def round_trips(batch: pa.RecordBatch) -> pa.Array:
    """The fastest round trip of each connection between its ends (rows of `transport`), in µs; null: unknown."""
    both = pc.add(column(batch, "broker_round_trip_us"), column(batch, "client_round_trip_us"))
    spoke = (integers(column(batch, "client_data")) > 0) & (integers(column(batch, "broker_data")) > 0)
    enough = integers(column(batch, "client_packets")) + integers(column(batch, "broker_packets")) >= ENOUGH
    opened = in_any(batch, "opening", ["answered"]).to_numpy(zero_copy_only=False)
    return pc.if_else(pa.array(spoke & (opened | enough)), both, pa.scalar(None, pa.int64()))


def add_ways(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    """Add rows of the table `transport`."""
    both = round_trips(batch)
    slow = pc.fill_null(pc.greater_equal(both, FAR_NS // 1000), False)
    detector.parts["ways"].add(
        {
            "client_ip": column(batch, "client_ip"),
            "broker": broker_endpoint(batch),
            "to_broker_us": column(batch, "broker_round_trip_us"),
            "least_us": both,
            "most_us": both,
            "slow": slow.cast(pa.int64()),
            "again": sum(integers(column(batch, name)) for name in WAY_COLUMNS[-4:]),
        }
    )


def ways(detector: Accumulator[Any]) -> dict[tuple[str | None, str], Way]:
    """By client's address and broker."""
    return {
        (row["client_ip"], row["broker"]): Way(
            (row["to_broker_us"] or 0) * 1000,
            (row["least_us"] or 0) * 1000,
            (row["most_us"] or 0) * 1000,
            row["slow"],
            row["again"],
        )
        for row in detector.parts["ways"].table().to_pylist()
    }
