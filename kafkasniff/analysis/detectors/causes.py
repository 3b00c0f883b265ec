"""One cause, one finding: combines findings that are alike, and finds out which are effects of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import SEVERITIES, Finding, worst_first
from kafkasniff.analysis.detectors.tally import in_all
from kafkasniff.analysis.detectors.wording import client, plural
from kafkasniff.kafka.schema.codes import error_by_code

_CLIENT: Final = frozenset({"client_id", "client_ip"})
ALIKE: Final = 3
"""Up to this many findings that differ only in the client stay apart, unless the broker treats all clients so."""
CROWD: Final = 10
"""The same for findings that differ in their topics, groups or producers, too."""
MAX_WORST: Final = 20
"""Maximum number of clients that a combined finding names."""
_ALL_CLIENTS: Final = frozenset(
    {
        "clients-at-controllers",
        "late-answers",
        "other-clusters",
        "tls-failures",
        "unanswered-requests",
        "wrong-protocol",
    }
)
"""Detectors of what a broker does, for all of its clients."""
_OWN: Final = _CLIENT | {"topic", "partition", "group_id", "transactional_id", "producer_id", "producer_epoch"}
"""What each client may have of its own."""

_NETWORK: Final = ("far", "queue", "narrow", "outage", "large-packets")
"""What `trouble` of a finding of transport-trouble makes requests late or unanswered."""
_CAUSES: Final[Mapping[str, tuple[str, ...]]] = {
    "not-leader": ("56", "unreached-listeners", "broker-gone", "late-answers"),
    "unanswered-requests": (
        *(*_NETWORK, "broker-gone", "wrong-protocol", "cut-connections", "unreached-listeners"),
        "malformed-messages",
    ),
    "late-answers": ("broker-gone", *_NETWORK, "follower"),
    "follower": ("broker-gone", *_NETWORK),
    "lagging-replicas": ("broker-gone", *_NETWORK, "late-answers"),
    "retransmits": ("throttled-clients",),
    "slow-broker": ("broker-gone", *_NETWORK, "late-answers"),
    "encrypted-trouble": ("broker-gone", *_NETWORK, "late-answers"),
    "unreached-listeners": ("broker-gone", "late-answers", "wrong-protocol"),
    "metadata-storms": ("broker-gone", "unreached-listeners", "hidden-errors", "not-leader", "connection-churn"),
    "still-members": ("broker-gone", *_NETWORK, "late-answers"),
    "lost-members": ("broker-gone", *_NETWORK, "still-members"),
    "rebalance-storms": ("broker-gone", "lost-members"),
    "refused-commits": ("broker-gone", "lost-members", "rebalance-storms"),
    "connection-churn": (
        *("broker-gone", "sasl-failures", "tls-failures", "wrong-protocol", "unreached-listeners"),
        "cut-connections",
    ),
    "growing-lag": ("stuck-stable-offsets", "hanging-transactions"),
    "stuck-stable-offsets": ("hanging-transactions",),
    "wrong-protocol": ("broker-gone",),
    "tls-failures": ("bad-certificate",),
    "repeated-sequences": ("broker-gone", "hidden-errors", "not-leader", "late-answers"),
    "overwritten-records": ("broker-gone",),
    "offsets-out-of-range": ("overwritten-records", "missing-topics"),
    "blocked-streams-groups": ("missing-topics", "broker-gone"),
    "lost-records": ("broker-gone", "hidden-errors", "not-leader", "oversized-messages"),
}
"""Detectors, error codes and kinds of trouble that may explain the findings of another, or a kind of trouble, the
likeliest first. For error codes, see `dissectors/errors.txt`."""
_ANY: Final = ()
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "connection-churn": _ANY,
    "stuck-stable-offsets": _ANY,
    "unanswered-requests": _ANY,
    "late-answers": ("broker-gone", *_NETWORK, "follower"),
    "slow-broker": ("broker-gone", *_NETWORK),
    "encrypted-trouble": ("broker-gone", *_NETWORK),
    "metadata-storms": ("connection-churn",),
    "not-leader": ("wrong-broker",),
    # A broker does not read from connections that a quota muted (KIP-219).
    "transport-trouble": ("throttled-clients",),
    "blocked-streams-groups": ("missing-topics",),
    # A broker that stops still accepts connections, and closes them.
    "closed-early": ("broker-gone",),
    "hidden-errors": (
        *("damaged-records", "fenced-producers", "missing-topics", "offsets-out-of-range", "repeated-deliveries"),
        *("shared-instances", "wrong-broker"),
    ),
}
"""Detectors whose findings become a part of these causes, unless they are worse: the cause's finding says it all. Those
of `hidden-errors` always do, since these causes judge an error code by what came of it."""
SHOWN: Final = 3
"""Effects that a sentence names."""
MAX_EFFECTS: Final = 20
"""Maximum number of effects in the values of a finding."""
_SHARED: Final = ("cluster", "broker", "client_id", "client_ip", "group_id", "topic")
"""Values of subjects that must not differ if both findings have them."""
MAX_CANDIDATES: Final = 20
"""Findings of a kind that are considered as causes, the worst ones."""
SOON_NS: Final = 10_000_000_000
"""A cause may be noticed this long after its first effect …"""
LATE_NS: Final = 60_000_000_000
"""… and an effect may begin this long after the last sign of its cause."""


def combined(findings: Iterable[Finding]) -> list[Finding]:
    """Findings of one detector, in any order; those about the same trouble of several clients become one."""
    found = list(findings)
    for differ, apart in ((_CLIENT, ALIKE), (_OWN, CROWD)):
        groups: dict[tuple[Any, ...], list[Finding]] = {}
        for finding in found:
            rest = tuple((name, value) for name, value in finding.subject.items() if name not in differ)
            groups.setdefault((finding.detector, finding.severity, str(rest)), []).append(finding)
        found = []
        for alike in groups.values():
            most = 1 if differ is _CLIENT and alike[0].detector in _ALL_CLIENTS else apart
            found += [_one_of(worst_first(alike))] if len(alike) > most else alike
    return found


def _one_of(alike: Sequence[Finding]) -> Finding:
    """`alike`: worst first; the first one gives the words."""
    worst = alike[0]
    who = dict.fromkeys(one for finding in alike for one in _clients_of(finding))
    others = len(who) - 1
    more = f"similar for {plural(others, 'other client')}" if others > 0 else f"{len(alike) - 1:,} more alike"
    same = {
        name: value if all(finding.subject.get(name) == value for finding in alike) else None
        for name, value in worst.subject.items()
    }
    return msgspec.structs.replace(
        worst,
        title=f"{worst.title}; {more}",
        subject=same,
        **in_all((msgspec.structs.asdict(finding), finding.evidence) for finding in alike),
        values={**worst.values, "alike": len(alike), "clients": len(who), "worst_clients": list(who)[:MAX_WORST]},
    )


def _clients_of(finding: Finding) -> list[str]:
    if not finding.subject.keys() >= _CLIENT:
        known = finding.subject.get("client_id") or finding.subject.get("client_ip")
        return [] if known is None else [str(known)]
    return [client(finding.subject)]


def without_effects(
    found: list[tuple[Detector[Any], list[Finding]]],
) -> Iterator[tuple[Detector[Any], list[Finding]]]:
    """Findings by detector, without those that others name as their effects (`Detector.effects`)."""
    effects: dict[str, dict[tuple[str, ...], set[tuple[Any, ...]]]] = {}
    for detector, findings in found:
        for name, values in (effect for finding in findings for effect in detector.effects(finding)):
            keys = tuple(sorted(values))
            effects.setdefault(name, {}).setdefault(keys, set()).add(tuple(values[key] for key in keys))
    for detector, findings in found:
        known = effects.get(detector.name, {})
        yield (
            detector,
            [
                finding
                for finding in findings
                if not any(_values(finding, keys) in values for keys, values in known.items())
            ],
        )


def _values(finding: Finding, keys: tuple[str, ...]) -> tuple[Any, ...]:
    known = {**finding.subject, "severity": finding.severity}
    return tuple(known.get(key) for key in keys)


def with_causes(findings: Sequence[Finding]) -> list[Finding]:
    """All findings, worst first, each effect with its cause."""
    ordered = worst_first(findings)
    by_kind: dict[str, list[int]] = {}
    for index, finding in enumerate(ordered):
        for kind in _kinds_of(finding):
            if len(by_kind.setdefault(kind, [])) < MAX_CANDIDATES:
                by_kind[kind].append(index)
    cause: dict[int, int] = {}
    for index, finding in enumerate(ordered):
        likely = (other for kind in _causes_of(finding) for other in by_kind.get(kind, ()))
        found = next((other for other in likely if other != index and _may_cause(ordered[other], finding)), None)
        if found is not None:
            cause[index] = found
    # What causes an error is no less severe, unless it is usual.
    for index in [index for index in cause if ordered[index].severity == "error"]:
        for by in _chain(cause, index)[1:]:
            if ordered[by].severity == "warning":
                ordered[by] = msgspec.structs.replace(ordered[by], severity="error")
    parts = {index for index, by in cause.items() if _is_part(ordered[index], ordered[by])}
    chains = [[index, *(one for one in _chain(cause, index)[1:] if one not in parts)] for index in range(len(ordered))]
    effects: dict[int, list[str]] = {}
    for index in sorted(parts):
        if len(chains[index]) > 1:
            effects.setdefault(chains[index][1], []).append(ordered[index].title)
    explained = []
    for index, (whole, chain) in enumerate(zip(ordered, chains, strict=True)):
        if index in parts and len(chain) > 1:
            continue
        finding = _with_effects(whole, effects[index]) if index in effects else whole
        if len(chain) > 1:
            because = ordered[chain[1]]
            finding = msgspec.structs.replace(
                finding,
                meaning=f"{finding.meaning} It may follow from {because.detector}: {because.title.partition(': ')[0]}.",
                follows=because.title,
                rank=len(chain) - 1,
            )
        explained.append(finding)
    return worst_first(explained)


def effects_of(detectors: Iterable[str]) -> tuple[str, ...]:
    """Other detectors whose findings may follow from those of the given ones."""
    given = set(detectors)
    return tuple(name for name, causes in _CAUSES.items() if name not in given and not given.isdisjoint(causes))


def _chain(cause: Mapping[int, int], place: int) -> list[int]:
    """A finding, its cause, the cause of that, and so on."""
    chain = [place]
    while (last := cause.get(chain[-1])) is not None and last not in chain:
        chain.append(last)
    return chain


def _is_part(effect: Finding, cause: Finding) -> bool:
    """Whether the cause's finding says it all."""
    causes = _PARTS.get(str(effect.subject.get("kind")), _PARTS.get(effect.detector))
    if causes is None or (causes != _ANY and _kinds_of(cause).isdisjoint(causes)):
        return False
    worse = SEVERITIES.index(effect.severity) < SEVERITIES.index(cause.severity)
    return effect.detector == "hidden-errors" or not worse


def _with_effects(cause: Finding, effects: Sequence[str]) -> Finding:
    titles = "; ".join(effect.partition(": ")[0] for effect in effects[:SHOWN])
    more = f" and {len(effects) - SHOWN:,} more" if len(effects) > SHOWN else ""
    return msgspec.structs.replace(
        cause,
        meaning=f"{cause.meaning} Effects: {titles}{more}.",
        values={**cause.values, "effects": list(effects[:MAX_EFFECTS])},
    )


def _kinds_of(finding: Finding) -> set[str]:
    """What it may be called among the causes of others."""
    return {str(kind) for kind in (finding.detector, _code_of(finding), finding.subject.get("trouble")) if kind}


def _code_of(finding: Finding) -> str | None:
    code = finding.subject.get("error_code") if finding.detector == "hidden-errors" else None
    return None if code is None else str(code)


def _causes_of(effect: Finding) -> tuple[str, ...]:
    """Detectors and codes whose effect it may be, the likeliest first."""
    code = _code_of(effect)
    error = None if code is None else error_by_code(int(code))
    if error is not None:
        return error.after
    return _CAUSES.get(str(effect.subject.get("trouble")), _CAUSES.get(effect.detector, ()))


def _may_cause(cause: Finding, effect: Finding) -> bool:
    """Whether times and subjects allow it."""
    code = _code_of(cause)
    error = None if code is None else error_by_code(int(code))
    # What is wrong with a broker concerns all clients.
    silent = cause.subject.get("trouble") == "silent"
    # A leader waits for a follower that is gone, until that is no longer in sync.
    still = cause.subject.get("trouble") == "follower"
    follower = (still or cause.detector == "broker-gone") and bool(effect.values.get("replicas"))
    if still and not follower:
        return False
    writes = cause.subject.get("trouble") == "writes"
    of_broker = (
        cause.detector == "broker-gone" or silent or writes or (error is not None and error.settles == "operator")
    )
    for name in _SHARED:
        if (of_broker and name in _CLIENT) or (silent and effect.detector == "slow-broker"):
            continue  # its leaders wait for a silent follower
        if follower and name == "broker":
            continue
        mine, theirs = cause.subject.get(name), effect.subject.get(name)
        if mine is not None and theirs is not None and mine != theirs:
            return False
    if cause.first is None or effect.first is None:
        return True
    until = cause.first if cause.last is None else cause.last
    # Times of churn are those of whole spans.
    soon = LATE_NS if _PARTS.get(effect.detector) == _ANY else SOON_NS
    return cause.first <= effect.first + soon and effect.first <= until + LATE_NS
