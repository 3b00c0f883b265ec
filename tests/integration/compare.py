"""What a client program reports about itself, compared with what kafkasniff decoded: no message is missing, added or
attributed to another request. Each function yields a sentence per difference."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from tests.evidence.compare import Line
from tests.evidence.decoded import Decoded
from tests.evidence.reports import CHECKS
from tests.integration.run import Account

HEADER = ("api_key", "api_version", "correlation_id", "client_id", "client_port", "size")
"""Names that a client's log may give for a message; each client logs some of them."""


def differences(account: Account) -> Iterator[str]:
    """All differences; empty if the client's account and the decoded lines agree."""
    seen = Decoded(account.lines, ())
    return (f"{account.name}: {one}" for compare in COMPARISONS for one in compare(account, seen))


def each_report(account: Account, seen: Decoded) -> Iterator[str]:
    """The checks of the shipped captures' sidecars, on every report of this run."""
    for entry in account.reports:
        if entry["kind"] in CHECKS and not CHECKS[entry["kind"]](seen, entry):
            yield f"reported, but not decoded: {entry}"


def messages(account: Account, seen: Decoded) -> Iterator[str]:
    """The requests and responses are exactly those in the client's log.

    Except that a client that is about to close a connection may not log the last responses.
    """
    for kind in ("request", "response"):
        logged = [entry for entry in account.logged if entry["kind"] == kind]
        if not logged:
            yield f"{kind}: the client's log names none"
            return
        names = [name for name in HEADER if all(name in entry for entry in logged)]
        theirs = Counter(tuple(entry[name] for name in names) for entry in logged)
        streams: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for line in seen.lines:
            if line["type"] == kind:
                port = {"client_port": int(line["client"].rpartition(":")[2])}
                streams[line["connection"]].append(tuple({**line, **port}[name] for name in names))
        ours = Counter(header for stream in streams.values() for header in stream)
        unlogged = ours - theirs
        if kind == "response":
            for stream in streams.values():
                while stream and unlogged[stream[-1]] > 0:
                    unlogged[stream.pop()] -= 1
        for header in unlogged.elements():
            yield f"{kind}: decoded, but not logged: {dict(zip(names, header, strict=True))}"
        for header in (theirs - ours).elements():
            yield f"{kind}: logged, but not decoded: {dict(zip(names, header, strict=True))}"


def pairs(account: Account, seen: Decoded) -> Iterator[str]:
    """An exchange is one request and at most one response, which is later and has the same header values."""
    exchanges: dict[int, list[Line]] = defaultdict(list)
    for line in seen.lines:
        exchanges[line["exchange"]].append(line)
    same = ("connection", "client", "api_key", "api_version", "correlation_id", "client_id")
    for number, both in exchanges.items():
        if [line["type"] for line in both] not in (["request"], ["request", "response"]):
            yield f"exchange {number}: {[line['type'] for line in both]}"
        for name in same:
            if len({line[name] for line in both}) > 1:
                yield f"exchange {number}: its messages differ in {name}"


COMPARISONS: tuple[Callable[[Account, Decoded], Iterator[str]], ...] = (each_report, messages, pairs)
