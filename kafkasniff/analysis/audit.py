"""Who would be refused by a release of Kafka, and what its clients do not use yet: from what was seen on the wire.

    versions.py (a question)   client × API × version, counted
    offers.py                  what brokers told each client that they speak
    between_brokers.py         who is no client
    audit.py                   these together: clients with findings
    upgrades.py                what a newer release offers

A broker closes the connection on which a request comes whose version it does not have. Clients that ask with
ApiVersions first (KIP-35) do not send one: they take the highest version in common, and have to do without where there
is none. So what such a client speaks today may be its broker's limit or its own; `Offers` tells which, where it can be
told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from kafkasniff.analysis.between_brokers import is_between_brokers, is_broker
from kafkasniff.analysis.offers import Offers
from kafkasniff.analysis.questions.versions import Versions, verdict
from kafkasniff.kafka.named_apis import API_VERSIONS, PRODUCE
from kafkasniff.kafka.releases import Spoken, releases, spoken_by

__all__ = ["Audit", "BetweenBrokers", "Client", "Finding", "Need", "audit"]

KIP_896: Final = "4.0"
"""The release that took out what clients older than 2.1 speak."""

MAX_LISTED: Final = 12
"""APIs in a sentence."""

Kind = Literal["too-old", "too-new", "removed", "not-yet", "unstable"]
Outcome = Literal["refused", "at-risk", "served"]
_Who = tuple[str | None, str | None, str | None, str | None]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Finding(msgspec.Struct, frozen=True):
    """Requests that the release would not serve."""

    api: str
    """A number, where the API is newer than the definitions."""
    api_key: int
    api_versions: list[int]
    """Those that it would not serve, in order."""
    kind: Kind
    certain: bool
    """False: the client asks with ApiVersions first, and may find a version in common."""
    target_min: int | None
    """Lowest version of the API in the release; None where it does not have the API."""
    target_max: int | None
    requests: int
    meaning: str
    """What would happen, in a sentence."""


class Need(msgspec.Struct, frozen=True):
    """What a client must speak."""

    api: str
    api_key: int
    min_version: int
    max_version: int


class Client(msgspec.Struct, frozen=True):
    """Who sent requests: a client id at an address, with the same software."""

    client_id: str | None
    client_ip: str | None
    software_name: str | None
    software_version: str | None
    outcome: Outcome
    asks: bool
    """It was seen to ask with ApiVersions, if only on other connections of the same client id and address."""
    requests: int
    first: datetime | None
    last: datetime | None
    findings: list[Finding]
    falls_back: list[str]
    """What it speaks that is too new, as `Produce v13`: it asks first, and so takes lower versions."""
    notes: list[str]
    """What is no finding, but good to know."""
    needs: list[Need]
    """Versions of which it must speak one, by API: of the findings on versions that are too old or too new."""
    upgrade: str | None
    """The least that has to be done, in a sentence."""


class BetweenBrokers(msgspec.Struct, frozen=True):
    """Requests between brokers that the release would not serve: its own brokers and controllers do not send them."""

    api: str
    api_key: int
    api_version: int
    verdict: Kind
    requests: int


class Audit(msgspec.Struct, frozen=True):
    """What came out."""

    clients: list[Client]
    """All, those that would be refused first."""
    between_brokers: list[BetweenBrokers]
    used: dict[int, int]
    """API key → highest version that a client was seen to speak."""
    rule: str | None
    """What is known of Kafka's own clients, where one of them may be among those that are too old."""

    @property
    def has_findings(self) -> bool:
        """Whether any client may be refused."""
        return any(client.findings for client in self.clients)


class _Use(msgspec.Struct, frozen=True):
    api: str
    key: int
    version: int
    verdict: str
    requests: int
    first: int | None
    last: int | None


def audit(versions: Versions, offers: Offers) -> Audit:
    """What the target of `versions` would say to whom they have seen; `offers` has seen the same exchanges."""
    by_client, between = _uses(versions)
    # Its connections may be older than the capture, so that others tell that it asks, and what it is.
    askers = {who[:2] for who, uses in by_client.items() if any(use.key == API_VERSIONS for use in uses)}
    offered: dict[_Who, dict[int, int]] = {}
    for row in offers.result().to_pylist():
        offered.setdefault(_who(row), {})[row["api_key"]] = row["highest"]
    clients = [
        _client(versions.release, who, uses, offered.get(who, {}), asks=who[:2] in askers)
        for who, uses in by_client.items()
    ]
    order = {"refused": 0, "at-risk": 1, "served": 2}
    clients.sort(
        key=lambda one: (
            order[one.outcome],
            *_sortable(one.client_ip, one.client_id, one.software_name, one.software_version),
        )
    )
    used: dict[int, int] = {}
    for use in (use for uses in by_client.values() for use in uses):
        used[use.key] = max(use.version, used.get(use.key, 0))
    old = any(finding.kind == "too-old" for client in clients for finding in client.findings)
    order_of = releases().index
    rule = _RULE if old and order_of(versions.release) >= order_of(KIP_896) else None
    return Audit(clients, between, used, rule)


def _who(row: dict[str, Any]) -> _Who:
    return row["client_id"], row["client_ip"], row["software_name"], row["software_version"]


def _sortable(*values: str | None) -> tuple[tuple[bool, str], ...]:
    return tuple((value is not None, value or "") for value in values)


def _uses(versions: Versions) -> tuple[dict[_Who, list[_Use]], list[BetweenBrokers]]:
    """What each client speaks, and what brokers speak that the release lacks."""
    rows = versions.parts["versions"].table().to_pylist()
    verdicts: dict[tuple[int, int], str] = {}
    keys: dict[tuple[str | None, str | None], set[int]] = {}
    for row in rows:
        keys.setdefault((row["client_id"], row["client_ip"]), set()).add(row["api_key"])
    # A broker's connections may tell different software, or none.
    brokers = {who for who, spoken in keys.items() if is_broker(who[0], spoken)}
    by_client: dict[_Who, list[_Use]] = {}
    between: dict[tuple[int, int], BetweenBrokers] = {}
    for row in sorted(rows, key=lambda one: (_sortable(*_who(one)), one["api_key"], one["api_version"])):
        place = (row["api_key"], row["api_version"])
        if place not in verdicts:
            verdicts[place] = verdict(versions.release, *place)
        said, requests = verdicts[place], row["requests"]
        if is_between_brokers(place[0]) or (row["client_id"], row["client_ip"]) in brokers:
            if said != "supported":
                before = between[place].requests if place in between else 0
                kind = msgspec.convert(said, Kind)
                between[place] = BetweenBrokers(row["api"], *place, kind, requests + before)
            continue
        use = _Use(row["api"], *place, said, requests, row["first"], row["last"])
        by_client.setdefault(_who(row), []).append(use)
    return by_client, [between[place] for place in sorted(between)]


def _client(target: str, who: _Who, uses: Sequence[_Use], offered: Mapping[int, int], *, asks: bool) -> Client:
    speaks = spoken_by(target)
    # A release that does not know ApiVersions itself tells nobody what it speaks.
    adapts = asks and API_VERSIONS in speaks
    findings: list[Finding] = []
    falls_back: list[str] = []
    for key in sorted({use.key for use in uses}):
        of_api = [use for use in uses if use.key == key]
        for kind in sorted({use.verdict for use in of_api} - {"supported"}):
            wrong = [use for use in of_api if use.verdict == kind]
            if adapts and kind in ("too-new", "unstable"):
                falls_back.append(_spoken(wrong))
                continue
            found = _finding(msgspec.convert(kind, Kind), wrong, speaks.get(key))
            if adapts:
                highest = max(use.version for use in of_api)
                certain, meaning = _asked_first(found, highest, offered.get(key))
                found = msgspec.structs.replace(found, certain=certain, meaning=meaning)
            elif kind in ("too-new", "not-yet") and API_VERSIONS in speaks:
                # Whoever speaks it may well ask: what is new came later than ApiVersions.
                found = msgspec.structs.replace(found, certain=False, meaning=f"{_REFUSED}, unless it asks first")
            findings.append(found)
    notes = [_FALLS_BACK] if falls_back else []
    notes += _asking(target, uses, speaks.get(API_VERSIONS), asks=asks)
    outcome: Outcome = "served"
    if findings:
        outcome = "refused" if any(one.certain for one in findings) else "at-risk"
    needs = [
        Need(one.api, one.api_key, one.target_min, one.target_max)
        for one in findings
        if one.target_min is not None and one.target_max is not None
    ]
    return Client(
        *who,
        outcome,
        asks,
        sum(use.requests for use in uses),
        _moment(min((use.first for use in uses if use.first is not None), default=None)),
        _moment(max((use.last for use in uses if use.last is not None), default=None)),
        findings,
        falls_back,
        notes,
        needs,
        _upgrade(findings),
    )


def _spoken(uses: Sequence[_Use]) -> str:
    return f"{uses[0].api} v{', v'.join(str(use.version) for use in uses)}"


def _moment(time_ns: int | None) -> datetime | None:
    # Exact, unlike a division that goes through a float.
    return None if time_ns is None else _EPOCH + timedelta(microseconds=time_ns // 1000)


def _finding(kind: Kind, wrong: Sequence[_Use], speaks: Spoken | None) -> Finding:
    """Of a client that does not ask first."""
    stable = kind != "unstable"
    return Finding(
        wrong[0].api,
        wrong[0].key,
        [use.version for use in wrong],
        kind,
        stable,
        None if speaks is None else speaks.low,
        None if speaks is None else speaks.high,
        sum(use.requests for use in wrong),
        _REFUSED if stable else "only brokers answer that are set to serve unstable versions",
    )


def _asked_first(found: Finding, highest: int, offered: int | None) -> tuple[bool, str]:
    """Whether a client that asks would be refused for certain, and what would happen.

    `highest`: version of the API that it was seen to speak; `offered`: that it was offered.
    """
    if found.target_min is None:
        return False, "it asks first, and so knows that there is no such API: it does without, or gives up"
    if highest >= found.target_min:
        return False, f"it speaks v{highest}, too, and asks first: with that it would be served"
    if offered is None:
        return False, "it asks first; what it was told is not here, so it may speak newer versions, too"
    if highest >= offered:
        return False, f"it asks first, and its brokers offer no more than v{offered}: it may speak newer versions, too"
    meaning = f"it was offered up to v{offered} and speaks no more than v{highest}: there is no version in common"
    if found.api_key == PRODUCE:
        # KAFKA-18659: some versions of librdkafka do not compress where Produce v0 is not listed.
        meaning += "; v0 is listed all the same, and closes the connection"
    return True, meaning


# kafka.network.SocketServer closes the connection on which it finds a request that it does not know.
_REFUSED: Final = "the broker closes the connection without an answer, each time"
_RULE: Final = "Kafka's own Java clients speak what 4.0 and later need as of release 2.1 (KIP-896)."
_FALLS_BACK: Final = "it asks first, and takes lower versions than it speaks now, if it has them"
_NOT_SEEN: Final = (
    "it was not seen to ask with ApiVersions: its versions are fixed, or its connections are older than the capture"
)


def _asking(target: str, uses: Sequence[_Use], speaks: Spoken | None, *, asks: bool) -> Iterable[str]:
    """Notes on how it comes to its versions."""
    asked = sorted({use.version for use in uses if use.key == API_VERSIONS})
    if not asks:
        yield _NOT_SEEN
    elif asked and speaks is not None and asked[-1] > speaks.high:
        yield (
            f"it asks with ApiVersions v{asked[-1]}, newer than {target} has (v{speaks.high}): it is told so with "
            "error 35 and asks again (KIP-511)"
        )


def _upgrade(findings: Sequence[Finding]) -> str | None:
    """The least that helps. Of software nothing is known here but what it was seen to speak."""
    if not findings:
        return None
    parts = []
    old = [f"{one.api} v{one.target_min}" for one in findings if one.kind == "too-old"]
    if old:
        parts.append(f"a version of it that speaks {_listed(old)} or newer")
    new = [f"{one.api} v{one.target_max}" for one in findings if one.kind in ("too-new", "unstable")]
    if new:
        parts.append(f"settings or a version of it that speaks {_listed(new)} or older")
    gone = [one.api for one in findings if one.kind in ("removed", "not-yet")]
    if gone:
        parts.append(f"a version of it that does without {_listed(gone)}")
    return "; ".join(parts)


def _listed(items: Sequence[str]) -> str:
    """With commas, and "and" in front of the last; those that are too many for a sentence by their number."""
    if len(items) > MAX_LISTED:
        items = [*items[: MAX_LISTED - 1], f"{len(items) - MAX_LISTED + 1:,} others"]
    *others, last = items
    return f"{', '.join(others)} and {last}" if others else last
