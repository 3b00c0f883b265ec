"""Clients that connect to a controller instead of a broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.between_brokers import is_broker
from kafkasniff.analysis.columns import ORDER, column, in_any, looked_up, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Finding
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, Tally, clients
from kafkasniff.analysis.detectors.wording import client
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.questions.versions import is_controller, offered_in
from kafkasniff.engine.roles import Bodies

_ASKING: Final = ("ApiVersions", "SaslHandshake", "SaslAuthenticate")
"""APIs that clients use before they know what a listener offers."""
MAX_PAIRS: Final = 1 << 17
"""Maximum number of pairs of client and listener, the busiest."""


class ClientsAtControllersThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `ClientsAtControllers`."""

    attempts: Annotated[int, Meta(ge=1, description="Report a client that asked a controller this often …")] = 3
    patience: Annotated[
        Duration, Meta(ge=0, description="… or once, if the capture continues for this long after that.")
    ] = 3_000_000_000


class ClientsAtControllers(Detector[ClientsAtControllersThresholds]):
    """Clients that reach a controller's listener: it offers neither Produce nor Metadata.

    Such a client asks for versions (ApiVersions), learns that the listener is of no use, and waits or asks again. Nodes
    of the cluster and tools for controllers (`bootstrap.controllers`) send other requests.

    Caveats: a health check that only asks for versions looks the same.
    """

    name: ClassVar[str] = "clients-at-controllers"
    summary: ClassVar[str] = "Clients that connect to a controller instead of a broker."
    parameters_type = ClientsAtControllersThresholds
    bodies: ClassVar[Bodies] = {("response", "ApiVersions"): None}

    _asked = Tally("asked", (*CLIENT, *BROKER), bound=MAX_PAIRS)

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *CLIENT_COLUMNS, "broker_ip", "broker_port", "response_body")
        return {
            "exchanges": TableReading((*ORDER, *own)),
            "connections": TableReading(("end_time_ns",), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        count: Any = (("count", pa.int64(), "sum"),)
        return {
            **super().shapes(),
            "served": Shape(keys=(*CLIENT, *BROKER), measures=count, weight="count", bound=MAX_PAIRS),
            "whole": Shape(keys=(("one", pa.int8()),), measures=(("end_ns", pa.int64(), "max"),)),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "connections":
            self.parts["whole"].add({"one": [0], "end_ns": [pc.max(column(batch, "end_time_ns")).as_py()]})
            return
        asking = in_any(batch, "api", _ASKING)
        other = only(batch, pc.invert(asking))
        self.parts["served"].add({**clients(other, broker=True), "count": np.ones(other.num_rows, np.int64)})
        batch = only(batch, pc.and_(asking, pc.is_valid(column(batch, "response_body"))))
        found = looked_up(batch, "response_body", lambda text: is_controller(offered_in(text)), pa.bool_())
        batch = only(batch, found)
        self._asked.add(self, batch, clients(batch, broker=True))

    def findings(self) -> Iterator[Finding]:
        end = pc.max(self.parts["whole"].table().column("end_ns")).as_py()
        pair = (*CLIENT_COLUMNS, "broker")
        served = {tuple(row[name] for name in pair) for row in self.parts["served"].table().to_pylist()}
        for row, evidence in self._asked.rows(self):
            if tuple(row[name] for name in pair) in served or _is_node(row["client_id"]):
                continue
            waited = end is not None and row["first"] is not None and end - row["first"] >= self.thresholds.patience
            if row["count"] < self.thresholds.attempts and not waited:
                continue
            yield self.row_finding(
                row,
                evidence,
                "error",
                f"{client(row)} connects to {row['broker']}, which is a controller and serves no clients",
                meaning=(
                    "The listener belongs to a controller of the quorum. It serves brokers and administrative tools; "
                    "it names no brokers and takes no records. The client can do nothing there."
                ),
                advice=(
                    "Set the client's bootstrap.servers to the listeners of brokers, not to the port of "
                    "controller.listener.names. If brokers sent it there, correct their advertised.listeners; if a "
                    "load balancer or a Kubernetes service did, correct its targets. Administrative tools take "
                    "controllers with --bootstrap-controller."
                ),
                subject=pair,
                values={"attempts": row["count"]},
            )


def _is_node(client_id: str | None) -> bool:
    """Whether a node of the cluster has this name, which may only have asked for versions so far."""
    return client_id is not None and (client_id.isdecimal() or is_broker(client_id, ()))
