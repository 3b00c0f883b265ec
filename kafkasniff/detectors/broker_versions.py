"""Brokers of one cluster that offer different versions of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, Reading
from kafkasniff.analysis.columns import ORDER, broker_endpoint, column, in_any, looked_up, only
from kafkasniff.analysis.offers import highest
from kafkasniff.analysis.partials import Shape
from kafkasniff.detectors.detector import Bodies, Detector
from kafkasniff.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.detectors.tally import BROKER, Tally
from kafkasniff.detectors.wording import plural
from kafkasniff.kafka.dissectors import api
from kafkasniff.kafka.releases import releases, spoken_by

__all__ = ["MixedBrokerVersions"]

MAX_OFFERS: Final = 1 << 12
"""Different answers of brokers that are kept; some kB each."""
MAX_APIS: Final = 256
"""APIs of an answer that are compared; Kafka has 95."""
SHOWN: Final = 4
PRODUCE: Final = 0
"""A listener of controllers does not offer it, and is no peer of brokers."""


class MixedVersionsThresholds(Parameters, frozen=True, kw_only=True):
    """Of `MixedBrokerVersions`."""

    apis: Annotated[int, Meta(ge=1, description="So many APIs must differ in their highest version.")] = 1


class MixedBrokerVersions(Detector[MixedVersionsThresholds]):
    """Compares the highest versions that brokers tell in ApiVersions; also of one broker, before and after an upgrade.

    Listeners that do not offer Produce are those of controllers, and are left out.
    """

    name: ClassVar[str] = "mixed-broker-versions"
    summary: ClassVar[str] = "Brokers that offer different versions of the protocol."
    parameters_type = MixedVersionsThresholds
    bodies: ClassVar[Bodies] = {("response", "ApiVersions"): None}

    _offers = Tally("offers", (*BROKER, ("offer", pa.string())), bound=MAX_OFFERS)

    def reads(self) -> Mapping[str, Reading]:
        own = ("api", "broker_ip", "broker_port", "response_body")
        return {"exchanges": Reading((*ORDER, *own), ("ApiVersions",))}

    def shapes(self) -> Mapping[str, Shape]:
        return self._offers.shapes()

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", ["ApiVersions"]), pc.is_valid(column(batch, "response_body"))))
        # What else is in the answer, of features and their epochs, changes by the minute.
        offer = looked_up(batch, "response_body", _offer, pa.string())
        told = pc.is_valid(offer)
        batch, offer = only(batch, told), offer.filter(told)
        self._offers.add(self, batch, {"broker": broker_endpoint(batch), "offer": offer})

    def findings(self) -> list[Finding]:
        rows = sorted(
            self._offers.rows(self), key=lambda row: (row[0]["first"] or 0, row[0]["broker"], row[0]["offer"])
        )
        if len({row["offer"] for row, _ in rows}) < 2:
            return []
        offers = [dict(msgspec.json.decode(row["offer"])) for row, _ in rows]
        # An API that not all offer says less: listeners of one broker may differ in that.
        common = set.intersection(*(set(one) for one in offers))
        differ = sorted(key for key in common if len({one[key] for one in offers}) > 1)
        if len(differ) < self.thresholds.apis:
            return []
        brokers = [f"{row['broker']} {_release(offer)}" for (row, _), offer in zip(rows, offers, strict=True)]
        names = [_range(key, offers) for key in differ]
        evidence = sorted(
            (one for _, some_ in rows for one in some_[:1]), key=lambda one: (one.time_ns or 0, one.connection_id)
        )
        times = [row[end] for row, _ in rows for end in ("first", "last") if row[end] is not None]
        endpoints = sorted({row["broker"] for row, _ in rows})
        return [
            self.finding(
                "warning",
                f"{plural(len(endpoints), 'broker')} with different versions of {plural(len(differ), 'API')}: "
                f"{_listed(brokers)} ({_listed(names)})",
                meaning=(
                    "Brokers of different releases: an upgrade is under way, or one was forgotten. Clients speak to "
                    "each what it offers, so that features come and go with the broker, and partitions that move may "
                    "change how clients behave."
                ),
                advice=(
                    "Finish the upgrade; until then keep to what the oldest broker knows. Different clusters in one "
                    "capture look the same: then there is nothing to do."
                ),
                subject={"brokers": endpoints},
                count=sum(row["count"] for row, _ in rows),
                first=min(times, default=None),
                last=max(times, default=None),
                evidence=tuple(
                    Evidence(one.connection_id, one.exchange_id, one.time_ns, "what the broker offers")
                    for one in evidence[:MAX_EVIDENCE]
                ),
                values={"apis": len(differ), "offers": [_release(offer) for offer in offers]},
            )
        ]


def _offer(text: str) -> str | None:
    """The highest versions as text that is equal for equal ones; None for what is no broker's offer."""
    try:
        found = highest(msgspec.json.decode(text))
    except msgspec.DecodeError:
        return None
    if PRODUCE not in found:
        return None
    return msgspec.json.encode(sorted(found.items())[:MAX_APIS]).decode()


def _release(offer: Mapping[int, int]) -> str:
    """The oldest release of Kafka that has all of these versions: a broker is no older."""
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
    """Names that are safe already."""
    told = ", ".join(names[:SHOWN])
    return f"{told} and {len(names) - SHOWN:,} more" if len(names) > SHOWN else told
