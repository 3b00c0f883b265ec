"""Combines findings that differ only in whom they concern: one cause, one finding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Finding, worst_first
from kafkasniff.analysis.detectors.wording import client, plural

__all__ = ["combined"]

ALIKE: Final = 3
"""Up to this many findings that differ only in the client stay apart, unless the broker treats all clients so."""
CROWD: Final = 10
"""The same for findings that differ in their topics, groups or producers, too."""
MAX_WORST: Final = 20
"""Maximum number of clients that a combined finding names."""
_CLIENTS: Final = frozenset({"client_id", "client_ip"})
_OF_BROKER: Final = frozenset({"late-answers", "tls-failures", "unanswered-requests", "wrong-protocol"})
"""Detectors of what a broker does, for all of its clients."""
_OWN: Final = _CLIENTS | {"topic", "partition", "group_id", "transactional_id", "producer_id", "producer_epoch"}
"""What each client may have of its own."""


def combined(findings: Iterable[Finding]) -> list[Finding]:
    """Findings of one detector, in any order; those about the same trouble of several clients become one."""
    found = list(findings)
    for differ, apart in ((_CLIENTS, ALIKE), (_OWN, CROWD)):
        groups: dict[tuple[Any, ...], list[Finding]] = {}
        for one in found:
            rest = tuple((name, value) for name, value in one.subject.items() if name not in differ)
            groups.setdefault((one.detector, one.severity, str(rest)), []).append(one)
        found = []
        for alike in groups.values():
            most = 1 if differ is _CLIENTS and alike[0].detector in _OF_BROKER else apart
            found += [_one_of(worst_first(alike))] if len(alike) > most else alike
    return found


def _one_of(alike: Sequence[Finding]) -> Finding:
    """`alike`: worst first; the first one gives the words."""
    worst = alike[0]
    who = dict.fromkeys(one for finding in alike for one in _clients_of(finding))
    others = len(who) - 1
    more = f"similar for {plural(others, 'other client')}" if others > 0 else f"{len(alike) - 1:,} more alike"
    same = {
        name: value if all(one.subject.get(name) == value for one in alike) else None
        for name, value in worst.subject.items()
    }
    evidence = sorted(
        (each for one in alike for each in one.evidence),
        key=lambda each: (each.time_ns or 0, each.connection_id, each.exchange_id or 0, each.note),
    )
    return msgspec.structs.replace(
        worst,
        title=f"{worst.title}; {more}",
        subject=same,
        count=sum(one.count for one in alike),
        first=min((one.first for one in alike if one.first is not None), default=None),
        last=max((one.last for one in alike if one.last is not None), default=None),
        evidence=tuple(evidence[:MAX_EVIDENCE]),
        values={**worst.values, "alike": len(alike), "clients": len(who), "worst_clients": list(who)[:MAX_WORST]},
    )


def _clients_of(finding: Finding) -> list[str]:
    if not finding.subject.keys() >= _CLIENTS:
        known = finding.subject.get("client_id") or finding.subject.get("client_ip")
        return [] if known is None else [str(known)]
    return [client(finding.subject)]
