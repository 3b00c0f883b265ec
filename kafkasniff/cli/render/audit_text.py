"""The result of `audit` as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from kafkasniff.analysis.audit import Audit, AuditedClient, AuditFinding, BetweenBrokers, NewVersions
from kafkasniff.enrich.hosts import Hosts
from kafkasniff.sinks.summaries.phrases import few
from kafkasniff.text.printable import COLOUR, PLAIN, Paint, display_width, word, wrapped

MAX_CLIENTS: Final = 200
"""Clients shown per outcome in the text; JSON has all."""

MAX_ROWS: Final = 100
"""APIs shown per row; the wire can name 65,536."""
MAX_VERSIONS: Final = 8
"""Versions shown per API."""
NAME_WIDTH: Final = 40
"""Length limit of client ids and software names, in characters."""

_SAID: Final = {
    "too-old": "too old",
    "too-new": "too new",
    "removed": "removed",
    "not-yet": "not there yet",
    "unstable": "not stable",
}


class Audited(msgspec.Struct, frozen=True):
    """What an audit reports."""

    target: str
    older: str | None
    """The release of `--from`."""
    found: Audit
    new: list[NewVersions] | None
    """Set with `--from`."""


class _Counts(msgspec.Struct, frozen=True):
    refused: int
    """Clients that would be refused."""
    at_risk: int
    """Clients that may be refused."""
    served: int
    """All others."""


class _Json(msgspec.Struct, frozen=True, rename={"older": "from"}):
    """The JSON object (docs/audit.md)."""

    target: str
    """The release."""
    older: str | None
    """The release of `--from`; null without it."""
    counts: _Counts
    """Numbers of clients by outcome."""
    clients: list[AuditedClient]
    """All clients, refused ones first."""
    rule: str | None
    """What KIP-896 says about Kafka's own clients, if it applies and some client is too old for the target; otherwise
    null.
    """
    between_brokers: list[BetweenBrokers]
    """Requests between brokers that the target lacks."""
    new: list[NewVersions] | None
    """With `--from`, new versions that clients do not use, by API; otherwise null."""


def _counts(clients: Sequence[AuditedClient]) -> _Counts:
    outcomes = [client.outcome for client in clients]
    return _Counts(outcomes.count("refused"), outcomes.count("at-risk"), outcomes.count("served"))


def json_line(audited: Audited) -> bytes:
    """One object on a line."""
    audit = audited.found
    answer = _Json(
        audited.target,
        audited.older,
        _counts(audit.clients),
        audit.clients,
        audit.rule,
        audit.between_brokers,
        audited.new,
    )
    return msgspec.json.encode(answer) + b"\n"


def text(audited: Audited, *, coloured: bool, hosts: Hosts | None = None, width: int | None = None) -> str:
    """Lines: the outcome, clients with findings, other clients, brokers, what is new; footnotes at the end.

    `width`: longer lines are wrapped.
    """
    lines = _AuditText(audited, COLOUR if coloured else PLAIN, hosts).lines()
    if width is not None:
        lines = (part for line in lines for part in wrapped(line, width, 4))
    return "".join(f"{line.rstrip()}\n" for line in lines)


class _AuditText:
    """The text while it is built. Sentences that several clients share become numbered footnotes at the end."""

    def __init__(self, audited: Audited, paint: Paint, hosts: Hosts | None) -> None:
        self._audited = audited
        self._paint = paint
        self._hosts = hosts
        self._said: dict[str, int] = {}
        """Sentence → number."""

    def lines(self) -> Iterator[str]:
        """All lines."""
        audit, paint = self._audited.found, self._paint
        yield _headline(self._audited.target, _counts(audit.clients), len(audit.clients), paint)
        for outcome in ("refused", "at-risk"):
            audited_clients = [client for client in audit.clients if client.outcome == outcome]
            for client in audited_clients[:MAX_CLIENTS]:
                yield ""
                yield from self._refused(client)
            yield from _left_out(audited_clients)
        served = [client for client in audit.clients if client.outcome == "served"]
        if served:
            yield ""
            yield f"{paint.api}Served:{paint.reset}"
            rows = [(*_who(client, self._hosts), _requests(client.requests)) for client in served[:MAX_CLIENTS]]
            for row, client in zip(_aligned(rows), served, strict=False):
                yield f"  {row}  {self._marks(client.notes)}"
            yield from _left_out(served)
        if audit.between_brokers:
            yield ""
            yield f"{paint.api}Between brokers{paint.reset}, whose own versions change with the upgrade:"
            versions = [f"{word(used.api)} v{used.api_version}" for used in audit.between_brokers]
            yield f"  {few(versions, shown=MAX_ROWS)}"
        if self._audited.new is not None:
            yield ""
            yield from _new(self._audited, paint)
        if self._said or audit.rule:
            yield ""
        yield from (f"{paint.dim}[{number}]{paint.reset} {sentence}" for sentence, number in self._said.items())
        if audit.rule:
            yield audit.rule

    def _marks(self, sentences: Iterable[str]) -> str:
        numbers = [self._said.setdefault(sentence, len(self._said) + 1) for sentence in sentences]
        if not numbers:
            return ""
        return f"{self._paint.dim}[{', '.join(map(str, dict.fromkeys(numbers)))}]{self._paint.reset}"

    def _refused(self, client: AuditedClient) -> Iterator[str]:
        paint = self._paint
        said, colour = (
            ("would be refused", paint.error) if client.outcome == "refused" else ("may be refused", paint.warn)
        )
        who = "  ".join(_who(client, self._hosts))
        yield f"{paint.api}{who}{paint.reset}  {colour}{said}{paint.reset}  {self._marks(client.notes)}"
        findings = client.findings[:MAX_ROWS]
        rows = [(*_row(finding, self._audited.target), _requests(finding.requests)) for finding in findings]
        for row, finding in zip(_aligned(rows), findings, strict=True):
            yield f"  {row}  {self._marks([finding.meaning])}"
        if len(client.findings) > MAX_ROWS:
            yield f"  … +{len(client.findings) - MAX_ROWS:,}"
        if client.upgrade is not None:
            yield f"  {paint.note}needs{paint.reset} {client.upgrade}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Cells in columns as wide as they need."""
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True))


def _headline(target: str, counts: _Counts, clients: int, paint: Paint) -> str:
    if not clients:
        return "No client was seen."
    whole = "1 client" if clients == 1 else f"{clients:,} clients"
    parts = []
    if counts.refused:
        parts.append(f"{paint.error}{counts.refused:,} would be refused{paint.reset}")
    if counts.at_risk:
        parts.append(f"{paint.warn}{counts.at_risk:,} may be refused{paint.reset}")
    if counts.served:
        parts.append(f"{counts.served:,} would be served")
    return f"Kafka {target}, {whole}: {', '.join(parts)}."


def _left_out(clients: Sequence[AuditedClient]) -> Iterator[str]:
    if len(clients) > MAX_CLIENTS:
        yield f"  … and {len(clients) - MAX_CLIENTS:,} more (--format json has all)"


def _who(client: AuditedClient, hosts: Hosts | None) -> tuple[str, str, str]:
    address = client.client_ip or "unknown address"
    host = None if hosts is None else hosts.name(client.client_ip)
    if host is not None:
        address += f" {word(host, NAME_WIDTH)}"
    name = "no client id" if client.client_id is None else word(client.client_id, NAME_WIDTH)
    software = "software unknown"
    if client.software_name is not None:
        software = word(client.software_name, NAME_WIDTH)
        if client.software_version is not None:
            software += f" {word(client.software_version, NAME_WIDTH)}"
    return address, name, software


def _requests(count: int) -> str:
    return f"{count:,} request{'' if count == 1 else 's'}"


def _row(audit_finding: AuditFinding, target: str) -> tuple[str, str, str]:
    has = f"{target} does not have it"
    if audit_finding.target_min is not None:
        has = f"{target} has v{audit_finding.target_min}"
        if audit_finding.target_max != audit_finding.target_min:
            has += f"-v{audit_finding.target_max}"
    versions = few([f"v{version}" for version in audit_finding.api_versions], shown=MAX_VERSIONS)
    return f"{word(audit_finding.api)} {versions}", _SAID[audit_finding.kind], has


def _new(audited: Audited, paint: Paint) -> Iterator[str]:
    new = audited.new or []
    if not new:
        yield f"Clients use everything that {audited.target} adds to {audited.older}."
        return
    yield f"{paint.api}New in {audited.target}{paint.reset} since {audited.older}, and not used by the clients seen:"
    rows = [
        (new_versions.api, f"v{', v'.join(map(str, new_versions.unused))}", _used(new_versions)) for new_versions in new
    ]
    yield from (f"  {row}" for row in _aligned(rows))


def _used(one: NewVersions) -> str:
    used = one.summary.rstrip(".") if one.used_max is None else f"v{one.used_max} is used"
    return f"{used}; v{one.unstable[0]} is not stable" if one.unstable else used
