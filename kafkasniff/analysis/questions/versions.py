"""Clients that use API versions which a Kafka release lacks, and versions that brokers offered them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import TIME, column, datetimes, only, table_of
from kafkasniff.analysis.dimensions import Dimensions
from kafkasniff.analysis.partials import Shape
from kafkasniff.errors import UsageError
from kafkasniff.kafka.apis.dissectors import API_VERSIONS, PRODUCE
from kafkasniff.kafka.apis.releases import find_release, releases, spoken, spoken_by


class Offers(Accumulator[Parameters]):
    """For each client the highest version of each API that brokers offered it; the lowest of several brokers' offers.

    A client that asks uses the highest version in common with its broker. So if it uses a lower version than it was
    offered, it does not know or want the higher ones; if it uses the highest offered, its own limit is unknown.
    """

    name: ClassVar[str] = "offers"
    summary: ClassVar[str] = "Versions that brokers offered their clients."

    def check(self) -> None:
        """Any parameters are valid."""
        self._dimensions = Dimensions(("client", "address", "software"))

    def reads(self) -> Mapping[str, TableReading]:
        """Only ApiVersions, with responses."""
        columns = (*self._dimensions.reads, "api_key", "response_body")
        return {"exchanges": TableReading(columns, apis=("ApiVersions",))}

    def shapes(self) -> Mapping[str, Shape]:
        """By client and API."""
        keys = (*self._dimensions.keys, ("api_key", pa.int32()))
        return {"offers": Shape(keys=keys, measures=(("highest", pa.int32(), "min"),))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        """Take rows; those without bodies have no information."""
        asked = pc.and_(pc.equal(column(batch, "api_key"), API_VERSIONS), pc.is_valid(column(batch, "response_body")))
        batch = only(batch, asked)
        # Thousands of connections get the same offer from the same few brokers, so each text is read only once.
        names = [*self._dimensions.names, "response_body"]
        rows = pa.table({**self._dimensions.arrays(batch), "response_body": column(batch, "response_body")})
        different = rows.group_by(names).aggregate([]).to_pylist()
        offered = {text: offered_in(text) for text in {row["response_body"] for row in different}}
        columns: dict[str, list[Any]] = {name: [] for name in (*self._dimensions.names, "api_key", "highest")}
        for row in different:
            for key, version in offered[row.pop("response_body")].items():
                for name, value in {**row, "api_key": key, "highest": version}.items():
                    columns[name].append(value)
        self.parts["offers"].add(columns)

    def result(self) -> pa.Table:
        """Columns of the client, `api_key`, `highest`."""
        order = [(name, "ascending") for name in (*self._dimensions.names, "api_key")]
        return self.parts["offers"].table().sort_by(order)


def highest(body: Any) -> dict[int, int]:
    """API key → highest version, from the body of an ApiVersions response; empty if it reports an error."""
    if not isinstance(body, Mapping) or body.get("error_code") != 0:
        return {}
    entries = body.get("api_keys")
    found: dict[int, int] = {}
    for entry in entries if isinstance(entries, list) else ():
        key, version = (entry.get("api_key"), entry.get("max_version")) if isinstance(entry, Mapping) else (None, None)
        if isinstance(key, int) and isinstance(version, int):
            found[key] = version
    return found


def is_controller(offered: Mapping[int, int]) -> bool:
    """Whether a listener that offers these versions is one of controllers, which serve no clients."""
    return bool(offered) and PRODUCE not in offered


def offered_in(text: str) -> dict[int, int]:
    """The same as `highest` from the body as in the table; empty if it is invalid, too."""
    return highest(_decoded(text))


def _decoded(text: str) -> Any:
    """A body as in the table; None if invalid, which only another program can have written."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


class VersionParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `ClientVersions`."""

    target: Annotated[str, Meta(description="The release, such as 3.9.")] = "4.0"
    all: Annotated[bool, Meta(description="Also show versions that the release has.")] = False


class ClientVersions(Accumulator[VersionParameters]):
    """Clients, the versions of each API that they use, and the verdict of the target release.

    A client that uses ApiVersions first, as all newer ones do, falls back to a lower version if its own is too new; one
    that is too old is not served. A too new ApiVersions itself is answered (KIP-511), and so is `supported`.
    """

    name: ClassVar[str] = "versions"
    summary: ClassVar[str] = "Clients that use API versions which a target release lacks."
    essential: ClassVar[tuple[str, ...]] = ("client_id", "api", "api_version", "requests", "verdict", "client_ip")
    columns: ClassVar[Mapping[str, str]] = {
        "verdict": (
            "supported; too-old or too-new: outside of `target_min` to `target_max`; removed or not-yet: the release "
            "no longer has the API, or not yet; unstable: it needs an opt-in there"
        ),
        "target_min": "lowest version of the API in that release; null if it has none",
        "target_max": "highest version",
    }
    parameters_type = VersionParameters

    def check(self) -> None:
        """The release must be known."""
        found = find_release(self.parameters.target)
        if found is None:
            raise UsageError(f"release {self.parameters.target!r} is unknown: use {releases()[0]} to {releases()[-1]}")
        self.release = found
        """The target as named in the table of releases."""
        self._dimensions = Dimensions(("client", "address", "software", "api", "version"))

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading((*self._dimensions.reads, "time_ns"))}

    def shapes(self) -> Mapping[str, Shape]:
        measures: Any = (
            ("requests", pa.int64(), "sum"),
            ("first", pa.int64(), "min"),
            ("last", pa.int64(), "max"),
        )
        keys = (*self._dimensions.keys, ("api_key", pa.int32()))
        return {"versions": Shape(keys=keys, measures=measures, weight="requests")}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        times = column(batch, "time_ns")
        self.add(batch, pa.array([1] * batch.num_rows, pa.int64()), times, times)

    def add(self, batch: pa.RecordBatch, requests: pa.Array, first: pa.Array, last: pa.Array) -> None:
        """Take rows that represent several exchanges each: their number, and the time_ns of the first and the last."""
        known = pc.and_(pc.is_valid(column(batch, "api_key")), pc.is_valid(column(batch, "api_version")))
        batch = only(batch, known)
        self.parts["versions"].add(
            {
                **self._dimensions.arrays(batch),
                "api_key": column(batch, "api_key"),
                "requests": requests.filter(known),
                "first": first.filter(known),
                "last": last.filter(known),
            }
        )

    def result(self) -> pa.Table:
        table = self.parts["versions"].table()
        target = spoken_by(self.release)
        pairs = zip(table.column("api_key").to_pylist(), table.column("api_version").to_pylist(), strict=True)
        verdicts = [verdict(self.release, key, version) for key, version in pairs]
        ranges = [target.get(key) for key in table.column("api_key").to_pylist()]
        columns: dict[str, Any] = {
            **{name: table.column(name) for name in (*self._dimensions.names, "requests")},
            "verdict": verdicts,
            "target_min": [None if one is None else one.low for one in ranges],
            "target_max": [None if one is None else one.high for one in ranges],
            "first": datetimes(table.column("first")),
            "last": datetimes(table.column("last")),
        }
        fields = [
            *self._dimensions.fields,
            ("verdict", pa.string()),
            ("target_min", pa.int32()),
            ("target_max", pa.int32()),
            ("requests", pa.int64()),
            ("first", TIME),
            ("last", TIME),
        ]
        order = [(name, "ascending") for name in (*self._dimensions.names, "first")]
        found = table_of(columns, fields, order)
        return found if self.parameters.all else found.filter(pc.not_equal(found.column("verdict"), "supported"))


def verdict(release: str, key: int, version: int) -> str:
    """The verdict of a known release on a version of an API: the words of `ClientVersions`."""
    versions = spoken_by(release).get(key)
    if versions is None:
        order = releases()
        earlier = set(order[: order.index(release)])
        return "removed" if earlier & spoken(key).keys() else "not-yet"
    if version < versions.low:
        return "too-old"
    if version > versions.high:
        return "supported" if key == API_VERSIONS else "too-new"
    return "unstable" if version == versions.unstable else "supported"
