"""Groups brokers by cluster, using the cluster ids that messages carry.

Two clusters in one capture may have the same broker numbers, topic and group names, and producer ids. So whatever is
compared or added up over several brokers is separated by cluster.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Known, Parameters, TableReading
from kafkasniff.analysis.columns import brokers, column, encoded, in_any, matches, only
from kafkasniff.analysis.partials import Shape
from kafkasniff.engine.roles import Bodies
from kafkasniff.kafka.apis import dissectors
from kafkasniff.model import Direction, Endpoint

MAX_NAME: Final = 256
"""Maximum number of characters of a host name or cluster id; DNS allows 253, Kafka's cluster ids have 22."""
_MAX_NODE: Final = (1 << 31) - 1
_MAX_PORT: Final = (1 << 16) - 1
_LOCAL: Final = {"localhost": "127.0.0.1"}


class ListedBroker(msgspec.Struct):
    """One broker of a list.

    A field of another type is accepted, so that one odd entry does not hide the others; the properties check them.
    """

    node_id: Any = None
    host: Any = None
    port: Any = None

    @property
    def node(self) -> int | None:
        """The number of the broker; None if the body has none."""
        return self.node_id if type(self.node_id) is int and 0 <= self.node_id <= _MAX_NODE else None

    @property
    def endpoint(self) -> str | None:
        """`address:port` in the form of `broker_endpoint`; a host name, which no packet has, is not resolved."""
        if not isinstance(self.host, str) or not 0 < len(self.host) <= MAX_NAME:
            return None
        if type(self.port) is not int or not 0 <= self.port <= _MAX_PORT:
            return None
        return str(Endpoint(_LOCAL.get(self.host, self.host), self.port))


FIELD: Final = "cluster_id"
MAX_CLAIMS: Final = 1 << 14
"""Maximum number of brokers with a cluster id, and of pairs of brokers of one cluster without an id."""


@functools.cache
def _apis() -> dict[Direction, dict[str, bool]]:
    """APIs whose requests or responses carry a cluster id, derived from the definitions; True: as a tagged field."""
    known = [one for key in dissectors.api_keys() if (one := dissectors.api(key)) is not None]
    return {
        direction: {
            api.name: field.tag is not None
            for api in known
            for field in (api.definition.request if direction == "request" else api.definition.response).fields
            if field.name == FIELD
        }
        for direction in ("request", "response")
    }


class Clusters(Accumulator[Parameters]):
    """Brokers by cluster id.

    A response with a cluster id applies to the broker that sent it and to the brokers that it lists. A request names
    the cluster that its sender expects; that counts if the broker accepted it and its response has no id. Responses
    that list brokers without a cluster id (Metadata before version 2) only show that these belong together. An endpoint
    with two ids, such as a proxy or a reused port, has none.
    """

    name: ClassVar[str] = "clusters"

    @staticmethod
    def bodies() -> Bodies:
        """Bodies that are needed, as in `Detector.bodies`."""
        return {
            (direction, api): (FIELD,) if is_tagged else None
            for direction, apis in _apis().items()
            for api, is_tagged in apis.items()
        }

    def reads(self) -> Mapping[str, TableReading]:
        """Exchanges of the APIs that carry cluster ids, with their bodies."""
        apis = tuple(dict.fromkeys(name for names in _apis().values() for name in names))
        columns = ("api", "broker_ip", "broker_port", "error_code", "status", "request_body", "response_body")
        return {"exchanges": TableReading(columns, apis)}

    def shapes(self) -> Mapping[str, Shape]:
        """Claims that a broker belongs to a cluster, and pairs of brokers of one cluster."""
        broker = ("broker", pa.string())
        count: Any = (("count", pa.int64(), "sum"),)
        claims = (broker, ("cluster", pa.string()), ("asked", pa.bool_()))
        return {
            "claims": Shape(keys=claims, measures=count, weight="count", bound=MAX_CLAIMS),
            "together": Shape(keys=(broker, ("other", pa.string())), measures=count, weight="count", bound=MAX_CLAIMS),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        """Take rows; those without bodies have no information."""
        answers = only(batch, in_any(batch, "api", _apis()["response"]))
        self._take(answers, "response_body", asked=False)
        # A broker refuses a request for another cluster (INCONSISTENT_CLUSTER_ID, REBOOTSTRAP_REQUIRED).
        fine = pc.equal(pc.fill_null(column(batch, "error_code"), 0), 0)
        asks = pc.and_(in_any(batch, "api", _apis()["request"]), in_any(batch, "status", ["answered"]))
        asked = only(batch, pc.and_(asks, fine))
        self._take(only(asked, matches(asked, "request_body", f'"{FIELD}":"')), "request_body", asked=True)

    def _take(self, batch: pa.RecordBatch, name: str, *, asked: bool) -> None:
        rows = pa.table({"broker": brokers(batch), "body": encoded(batch, name)})
        claims: dict[tuple[str, str, bool], int] = {}
        pairs: dict[tuple[str, str], int] = {}
        # Many requests get the same response, so each text is read only once.
        for row in rows.group_by(["broker", "body"]).aggregate([([], "count_all")]).to_pylist():
            broker, count = row["broker"], row["count_all"]
            if broker is None or row["body"] is None:
                continue
            body = _read(row["body"])
            others = [] if asked else [place for broker in body.brokers if (place := broker.endpoint) is not None]
            if isinstance(body.cluster_id, str) and 0 < len(body.cluster_id) <= MAX_NAME:
                for place in dict.fromkeys((broker, *others)):
                    key = (place, body.cluster_id, asked)
                    claims[key] = claims.get(key, 0) + count
            else:
                for place in dict.fromkeys(others):
                    pairs[broker, place] = pairs.get((broker, place), 0) + count
        self.parts["claims"].add(_columns(("broker", "cluster", "asked"), claims))
        self.parts["together"].add(_columns(("broker", "other"), pairs))

    def known(self) -> Known:
        """The clusters according to the rows so far."""
        claimed: dict[bool, dict[str, set[str]]] = {False: {}, True: {}}
        for row in self.parts["claims"].table().to_pylist():
            claimed[row["asked"]].setdefault(row["broker"], set()).add(row["cluster"])
        ids = {**claimed[True], **claimed[False]}
        roots = _joined((row["broker"], row["other"]) for row in self.parts["together"].table().to_pylist())
        together: dict[str, set[str]] = {}
        for broker, root in roots.items():
            together.setdefault(root, set()).update(ids.get(broker, ()))
        labels: dict[str, str] = {}
        named = {one for some in ids.values() for one in some}
        for broker in {*ids, *roots}:
            own = ids.get(broker) or together.get(roots.get(broker, ""), set())
            if len(own) == 1:
                labels[broker] = next(iter(own))
            elif not own:
                labels[broker] = roots[broker]
        return Known(dict(sorted(labels.items())), frozenset(named))

    def result(self) -> pa.Table:
        """Columns `broker` and `cluster`."""
        labels = self.known().labels
        return pa.table({"broker": pa.array(labels, pa.string()), "cluster": pa.array(labels.values(), pa.string())})


class _ClusterBody(msgspec.Struct):
    cluster_id: Any = None
    brokers: list[ListedBroker] = []


_BODY: Final = msgspec.json.Decoder(_ClusterBody)


def _read(text: str) -> _ClusterBody:
    try:
        return _BODY.decode(text)
    except msgspec.DecodeError:
        return _ClusterBody()


def _columns(names: tuple[str, ...], rows: Mapping[tuple[Any, ...], int]) -> dict[str, Any]:
    columns: dict[str, Any] = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    return {**columns, "count": list(rows.values())}


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """For each broker, the first one by name among all that pairs connect with it."""
    parents: dict[str, str] = {}

    def root(broker: str) -> str:
        parents.setdefault(broker, broker)
        while parents[broker] != broker:
            parents[broker] = parents[parents[broker]]
            broker = parents[broker]
        return broker

    for one, other in pairs:
        low, high = sorted((root(one), root(other)))
        parents[high] = low
    return {broker: root(broker) for broker in parents}
