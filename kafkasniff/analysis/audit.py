"""Clients that a Kafka release would refuse, and newer features that they do not use, judged by their traffic.

    questions/versions.py   client × API × version, counted; versions that brokers offered to each client
    between_brokers.py      traffic that is not from clients
    audit.py                these together: clients with findings, and what a newer release offers

If a request has a version that a broker does not support, the broker closes the connection. Clients that use
ApiVersions first (KIP-35) avoid this: they choose the highest common version, and do without the API if there is none.
So the version that such a client uses today may be its broker's limit or its own; `Offers` shows which, if it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from kafkasniff.analysis.between_brokers import is_between_brokers, is_broker
from kafkasniff.analysis.questions.versions import ClientVersions, Offers, verdict
from kafkasniff.kafka.apis.dissectors import API_VERSIONS, PRODUCE, api
from kafkasniff.kafka.apis.releases import Spoken, first_release, releases, spoken_by


class NewVersions(msgspec.Struct, frozen=True):
    """Versions of an API that clients were not seen to use."""

    api: str
    """Name of the API."""
    api_key: int
    """Key of the API."""
    summary: str
    """The purpose of the API."""
    from_max: int | None
    """Highest version in the older release; null if it does not have the API."""
    target_max: int
    """Highest version in the release."""
    used_max: int | None
    """Highest version seen from clients; null if they do not use the API."""
    unused: list[int]
    """Versions that are new in the release and above those seen."""
    unstable: list[int]
    """Those of them that need an opt-in there."""
    since: list[str]
    """The first release of each unused version."""


def new_versions(target: str, older: str, used: Mapping[int, int]) -> list[NewVersions]:
    """By API key, the versions that a release adds for clients to an older one and that are unused; both are known.

    `used`: API key → highest version seen from clients.
    """
    before = spoken_by(older)
    found = []
    for key, now in spoken_by(target).items():
        definition = api(key)
        if definition is None or is_between_brokers(key):
            continue
        known = before[key].high if key in before else None
        lowest = now.low if known is None else max(known + 1, now.low)
        unused = [version for version in range(lowest, now.high + 1) if version > used.get(key, -1)]
        if unused:
            found.append(
                NewVersions(
                    definition.name,
                    key,
                    definition.summary,
                    known,
                    now.high,
                    used.get(key),
                    unused,
                    [version for version in unused if version == now.unstable],
                    [first_release(key, version) or target for version in unused],
                )
            )
    return found


KIP_896: Final = "4.0"
"""The release that dropped the versions of clients older than 2.1."""

MAX_LISTED: Final = 12
"""Maximum number of APIs in a sentence."""

Kind = Literal["too-old", "too-new", "removed", "not-yet", "unstable"]
Outcome = Literal["refused", "at-risk", "served"]
_Who = tuple[str | None, str | None, str | None, str | None]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AuditFinding(msgspec.Struct, frozen=True):
    """Requests that the release would not serve."""

    api: str
    """Name; a number if the API is unknown."""
    api_key: int
    """Key of the API."""
    api_versions: list[int]
    """The versions that would not be served, ascending."""
    kind: Kind
    """too-old, too-new; removed, not-yet: the release no longer has the API, or not yet; unstable: it requires an
    opt-in.
    """
    certain: bool
    """False: the client uses ApiVersions first and may find a common version."""
    target_min: int | None
    """Lowest version of the API in the release; null if it does not have the API."""
    target_max: int | None
    """Highest version."""
    requests: int
    """Number of requests."""
    meaning: str
    """The consequence, as a sentence."""


class Need(msgspec.Struct, frozen=True):
    """Versions that a client must support."""

    api: str
    """Name of the API."""
    api_key: int
    """Key of the API."""
    min_version: int
    """Lowest version that would do."""
    max_version: int
    """Highest version that would do."""


class AuditedClient(msgspec.Struct, frozen=True):
    """A client that sent requests: a client id at an address, with the same software."""

    client_id: str | None
    """Client id; null if unknown."""
    client_ip: str | None
    """Address; null if unknown."""
    software_name: str | None
    """Its software, from its ApiVersions request; null if unknown."""
    software_version: str | None
    """Version of the software."""
    outcome: Outcome
    """refused, at-risk, served."""
    asks: bool
    """Whether it was seen to use ApiVersions, if only on other connections of the same client id and address."""
    requests: int
    """Number of requests."""
    first: datetime | None
    """Time of the first request; null if the capture has no times."""
    last: datetime | None
    """Time of the last request."""
    findings: list[AuditFinding]
    """Requests that the release would not serve, by API and kind."""
    falls_back: list[str]
    """Versions that are too new, such as `Produce v13`, instead of which it uses lower ones."""
    notes: list[str]
    """Remarks that are not findings."""
    needs: list[Need]
    """For each API with a finding, the range of versions of which the client must support one."""
    upgrade: str | None
    """The smallest upgrade that helps, as a sentence; null if none is needed."""


class BetweenBrokers(msgspec.Struct, frozen=True):
    """Requests between brokers that the release would not serve: its own brokers and controllers do not send them."""

    api: str
    """Name; a number if the API is unknown."""
    api_key: int
    """Key of the API."""
    api_version: int
    """Version."""
    verdict: Kind
    """As `kind` of findings."""
    requests: int
    """Number of requests."""


class Audit(msgspec.Struct, frozen=True):
    """The result of an audit."""

    clients: list[AuditedClient]
    """All clients, those that would be refused first."""
    between_brokers: list[BetweenBrokers]
    used: dict[int, int]
    """API key → highest version seen from clients."""
    rule: str | None
    """A note on Kafka's own clients, if one of them may be too old."""

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


def audit(versions: ClientVersions, offers: Offers) -> Audit:
    """The verdicts of the target of `versions`; `offers` has seen the same exchanges."""
    by_client, between = _uses(versions)
    # Its connections may predate the capture, so others show its software and whether it asks.
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
        key=lambda audited_client: (
            order[audited_client.outcome],
            *_sortable(
                audited_client.client_ip,
                audited_client.client_id,
                audited_client.software_name,
                audited_client.software_version,
            ),
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


def _uses(versions: ClientVersions) -> tuple[dict[_Who, list[_Use]], list[BetweenBrokers]]:
    """The versions that each client uses, and those of brokers that the release lacks."""
    rows = versions.parts["versions"].table().to_pylist()
    verdicts: dict[tuple[int, int], str] = {}
    keys: dict[tuple[str | None, str | None], set[int]] = {}
    for row in rows:
        keys.setdefault((row["client_id"], row["client_ip"]), set()).add(row["api_key"])
    # A broker's connections may have different software, or none.
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


def _client(target: str, who: _Who, uses: Sequence[_Use], offered: Mapping[int, int], *, asks: bool) -> AuditedClient:
    speaks = spoken_by(target)
    # A release without ApiVersions cannot announce its versions.
    adapts = asks and API_VERSIONS in speaks
    findings: list[AuditFinding] = []
    falls_back: list[str] = []
    for key in sorted({use.key for use in uses}):
        of_api = [use for use in uses if use.key == key]
        for kind in sorted({use.verdict for use in of_api} - {"supported"}):
            wrong = [use for use in of_api if use.verdict == kind]
            if adapts and kind in ("too-new", "unstable"):
                falls_back.append(_spoken(wrong))
                continue
            audit_finding = _finding(msgspec.convert(kind, Kind), wrong, speaks.get(key))
            if adapts:
                highest = max(use.version for use in of_api)
                certain, meaning = _if_it_asks(audit_finding, highest, offered.get(key))
                audit_finding = msgspec.structs.replace(audit_finding, certain=certain, meaning=meaning)
            elif kind in ("too-new", "not-yet") and API_VERSIONS in speaks:
                # A client that uses it probably sends ApiVersions, which is older than these versions.
                meaning = f"{_REFUSED}, unless it sends ApiVersions"
                audit_finding = msgspec.structs.replace(audit_finding, certain=False, meaning=meaning)
            findings.append(audit_finding)
    notes = [_FALLS_BACK] if falls_back else []
    notes += _asking(target, uses, speaks.get(API_VERSIONS), asks=asks)
    outcome: Outcome = "served"
    if findings:
        outcome = "refused" if any(finding.certain for finding in findings) else "at-risk"
    needs = [
        Need(finding.api, finding.api_key, finding.target_min, finding.target_max)
        for finding in findings
        if finding.target_min is not None and finding.target_max is not None
    ]
    return AuditedClient(
        *who,
        outcome,
        asks,
        sum(use.requests for use in uses),
        _datetime(min((use.first for use in uses if use.first is not None), default=None)),
        _datetime(max((use.last for use in uses if use.last is not None), default=None)),
        findings,
        falls_back,
        notes,
        needs,
        _upgrade(findings),
    )


def _spoken(uses: Sequence[_Use]) -> str:
    return f"{uses[0].api} v{', v'.join(str(use.version) for use in uses)}"


def _datetime(time_ns: int | None) -> datetime | None:
    # Exact, unlike a division of floats.
    return None if time_ns is None else _EPOCH + timedelta(microseconds=time_ns // 1000)


def _finding(kind: Kind, wrong: Sequence[_Use], speaks: Spoken | None) -> AuditFinding:
    """The versions of a client that does not send ApiVersions."""
    stable = kind != "unstable"
    return AuditFinding(
        wrong[0].api,
        wrong[0].key,
        [use.version for use in wrong],
        kind,
        stable,
        None if speaks is None else speaks.low,
        None if speaks is None else speaks.high,
        sum(use.requests for use in wrong),
        _REFUSED if stable else "only brokers that enable unstable versions answer",
    )


def _if_it_asks(audit_finding: AuditFinding, highest: int, offered: int | None) -> tuple[bool, str]:
    """Whether a client that sends ApiVersions would certainly be refused, and the consequence.

    `highest`: highest version that it was seen to use; `offered`: highest version that it was offered.
    """
    if audit_finding.target_min is None:
        return False, "it sends ApiVersions, so it knows that the API is missing: it works without it, or gives up"
    if highest >= audit_finding.target_min:
        return False, f"it also uses v{highest} and sends ApiVersions: with that version it would be served"
    if offered is None:
        return False, "it sends ApiVersions, but the response was not captured: it may support newer versions"
    if highest >= offered:
        return False, f"it sends ApiVersions, and its brokers offer at most v{offered}: it may support newer versions"
    meaning = f"it was offered up to v{offered} and uses at most v{highest}: there is no common version"
    if audit_finding.api_key == PRODUCE:
        # KAFKA-18659: some versions of librdkafka do not compress if Produce v0 is not listed.
        meaning += "; brokers still list v0, but close the connection when it is used"
    return True, meaning


# kafka.network.SocketServer closes the connection on a request that it does not know.
_REFUSED: Final = "the broker closes the connection without a response, each time"
_RULE: Final = "Kafka's own Java clients support what 4.0 and later need as of release 2.1 (KIP-896)."
_FALLS_BACK: Final = "it sends ApiVersions, and will use lower versions if it supports them"
_NOT_SEEN: Final = (
    "no ApiVersions request was captured: its versions are fixed, or its connections are older than the capture"
)


def _asking(target: str, uses: Sequence[_Use], speaks: Spoken | None, *, asks: bool) -> Iterable[str]:
    """Notes on how it chooses its versions."""
    asked = sorted({use.version for use in uses if use.key == API_VERSIONS})
    if not asks:
        yield _NOT_SEEN
    elif asked and speaks is not None and asked[-1] > speaks.high:
        yield (
            f"it sends ApiVersions v{asked[-1]}, newer than {target} supports (v{speaks.high}): it gets error 35 and "
            "sends a lower version (KIP-511)"
        )


def _upgrade(findings: Sequence[AuditFinding]) -> str | None:
    """The minimum that helps. Only the versions that it used are known about the software."""
    if not findings:
        return None
    parts = []
    old = [f"{finding.api} v{finding.target_min}" for finding in findings if finding.kind == "too-old"]
    if old:
        parts.append(f"an upgrade to a client that supports {_listed(old)} or newer")
    new = [f"{finding.api} v{finding.target_max}" for finding in findings if finding.kind in ("too-new", "unstable")]
    if new:
        parts.append(f"other settings, or a client that supports {_listed(new)} or older")
    lacking = [finding.api for finding in findings if finding.kind in ("removed", "not-yet")]
    if lacking:
        parts.append(f"a client that does not use {_listed(lacking)}")
    return "; ".join(parts)


def _listed(items: Sequence[str]) -> str:
    """A list with commas and "and" before the last item; items that are too many for a sentence become a number."""
    if len(items) > MAX_LISTED:
        items = [*items[: MAX_LISTED - 1], f"{len(items) - MAX_LISTED + 1:,} others"]
    *others, last = items
    return f"{', '.join(others)} and {last}" if others else last
