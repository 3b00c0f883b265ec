"""Brokers of one cluster that offer different versions of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, broker_endpoint, column, in_any, looked_up, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.tally import BROKER, Tally
from kafkasniff.analysis.detectors.wording import plural
from kafkasniff.analysis.questions.versions import is_controller, offered_in
from kafkasniff.engine.roles import Bodies
from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.apis.releases import releases, spoken_by
from kafkasniff.text.printable import word

MAX_OFFERS: Final = 1 << 12
"""Maximum number of different broker answers that are kept; some kB each."""
MAX_APIS: Final = 256
"""Maximum number of APIs of an answer that are compared; Kafka has 95."""
SHOWN: Final = 4


class MixedVersionsThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `MixedBrokerVersions`."""

    apis: Annotated[
        int, Meta(ge=1, description="Report if at least this many APIs differ in their highest version.")
    ] = 1


class MixedBrokerVersions(Detector[MixedVersionsThresholds]):
    """Brokers of a cluster whose ApiVersions responses differ in the highest versions, or change over time.

    Without cluster ids, it is a note. Listeners without Produce belong to controllers and are ignored.

    Caveats: settings (`unstable.api.versions.enable`, features not finalized) change versions, too.
    """

    name: ClassVar[str] = "mixed-broker-versions"
    summary: ClassVar[str] = "Brokers that offer different versions of the protocol."
    parameters_type = MixedVersionsThresholds
    bodies: ClassVar[Bodies] = {("response", "ApiVersions"): None}
    parts_clusters = True

    _offers = Tally("offers", (*BROKER, ("offer", pa.string())), bound=MAX_OFFERS)

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "broker_ip", "broker_port", "response_body")
        return {"exchanges": TableReading((*ORDER, *own), ("ApiVersions",))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", ["ApiVersions"]), pc.is_valid(column(batch, "response_body"))))
        # The rest of the answer, such as features and their epochs, changes by the minute.
        offer = looked_up(batch, "response_body", _offer, pa.string())
        known = pc.is_valid(offer)
        batch, offer = only(batch, known), offer.filter(known)
        self._offers.add(self, batch, {"broker": broker_endpoint(batch), "offer": offer})

    def findings(self) -> list[Finding]:
        by_cluster: dict[str | None, list[_Offer]] = {}
        for row, evidence in self._offers.rows(self):
            # If the cluster is unknown, only the offers of one broker at two times can be compared.
            cluster = self.clusters.label(row["broker"])
            one = _Offer(row, evidence, dict(msgspec.json.decode(row["offer"])))
            by_cluster.setdefault(cluster, []).append(one)
        unknown = by_cluster.pop(None, [])
        found = []
        for cluster, offers in by_cluster.items():
            found += self._compared(offers, cluster)
        alone: dict[str, list[_Offer]] = {}
        for one in unknown:
            alone.setdefault(one.row["broker"], []).append(one)
        for offers in alone.values():
            found += self._compared(offers, None)
        if not found and not self.clusters.several:
            found += self._compared([*unknown, *(one for offers in by_cluster.values() for one in offers)], None)
        return found

    def _compared(self, offers: list[_Offer], cluster: str | None) -> list[Finding]:
        """A finding if the offers differ; `cluster` None: it is unknown whether these brokers belong to one."""
        offers = sorted(offers, key=lambda one: (one.row["first"] or 0, one.row["broker"], one.row["offer"]))
        if len(offers) < 2:
            return []
        # An API that only some brokers offer proves less: listeners of one broker may differ in that.
        common = set.intersection(*(set(one.versions) for one in offers))
        differ = sorted(key for key in common if len({one.versions[key] for one in offers}) > 1)
        if len(differ) < self.thresholds.apis:
            return []
        endpoints = sorted({one.row["broker"] for one in offers})
        sure = cluster is not None or len(endpoints) == 1
        brokers = list(dict.fromkeys(f"{one.row['broker']} {_release(one.versions)}" for one in offers))
        names = [_range(key, [one.versions for one in offers]) for key in differ]
        evidence = sorted(
            (seen for one in offers for seen in one.evidence[:1]),
            key=lambda seen: (seen.time_ns or 0, seen.connection_id),
        )
        times = [one.row[end] for one in offers for end in ("first", "last") if one.row[end] is not None]
        where = "" if cluster is None else f" of cluster {word(cluster)}"
        if not sure:
            where = ", perhaps of different clusters,"
        return [
            self.finding(
                "warning" if sure else "note",
                f"{plural(len(endpoints), 'broker')}{where} with different versions of {plural(len(differ), 'API')}: "
                f"{_listed(brokers)} ({_listed(names)})",
                meaning=(
                    "Brokers of different releases: an upgrade is in progress, or one broker was forgotten. Clients "
                    "use the versions that each broker offers, so features depend on the broker, and clients may "
                    "behave differently after a partition moves."
                    if sure
                    else (
                        "No message shows whether these brokers belong to one cluster. If they do, an upgrade is in "
                        "progress, or one broker was forgotten."
                    )
                ),
                advice=(
                    "Finish the upgrade. Until then, use no feature that the oldest broker lacks."
                    if sure
                    else "Nothing if they belong to different clusters; otherwise finish the upgrade."
                ),
                subject={"brokers": endpoints, **({} if cluster is None else {"cluster": cluster})},
                count=sum(one.row["count"] for one in offers),
                first=min(times, default=None),
                last=max(times, default=None),
                evidence=tuple(
                    Evidence(one.connection_id, one.exchange_id, one.time_ns, "offer of the broker")
                    for one in evidence[:MAX_EVIDENCE]
                ),
                values={
                    "apis": len(differ),
                    "offers": [_release(one.versions) for one in offers],
                    "different": names[:MAX_APIS],
                },
            )
        ]


class _Offer(NamedTuple):
    row: dict[str, Any]
    evidence: tuple[Evidence, ...]
    versions: dict[int, int]


def _offer(text: str) -> str | None:
    """The highest versions as text that is equal for equal ones; None if the answer is not from a broker."""
    found = offered_in(text)
    if not found or is_controller(found):
        return None
    return msgspec.json.encode(sorted(found.items())[:MAX_APIS]).decode()


def _release(offer: Mapping[int, int]) -> str:
    """The oldest Kafka release that has all of these versions: the broker is not older."""
    for release in releases():
        spoken = spoken_by(release)
        if all(key in spoken and version in spoken[key] for key, version in offer.items()):
            return f"({release} or later)"
    return f"({len(offer)} APIs)"


def _name(key: int) -> str:
    found = api(key)
    return f"API {key}" if found is None else found.name


def _range(key: int, offers: list[dict[int, int]]) -> str:
    """`Produce v9 and v11`."""
    versions = sorted({one[key] for one in offers})
    return f"{_name(key)} {' and '.join(f'v{version}' for version in versions[:SHOWN])}"


def _listed(names: list[str]) -> str:
    """Some of the names, which are already safe to print."""
    listed = ", ".join(names[:SHOWN])
    return f"{listed} and {len(names) - SHOWN:,} more" if len(names) > SHOWN else listed
