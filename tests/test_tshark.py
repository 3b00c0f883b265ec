"""tshark as a second opinion on what headers contain and imply: API, version, correlation id, and which request a
response answers. tshark 4.0 decodes few bodies of the newest versions."""

from __future__ import annotations

import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import shipped_captures
from tests.craft.outcome import Outcome, files_outcome
from tests.craft.read import is_cut
from tests.evidence.wire import broker_ports

pytestmark = [pytest.mark.tshark, pytest.mark.extended]

FIELDS = (
    *("tcp.stream", "ip.src", "ipv6.src", "tcp.srcport", "ip.dst", "ipv6.dst", "tcp.dstport"),
    *("kafka.api_key", "kafka.api_version", "kafka.correlation_id"),
)

SEEN = shipped_captures()[::6]
"""Neither the captures nor what tshark says of them changes; ours does, and the golden files show it."""

Request = tuple[int, int, int]
"""API key, version, correlation id."""


class Seen(NamedTuple):
    """One program's view of a connection."""

    requests: list[Request]
    responses: list[tuple[int | None, int]]
    """API key of the request that is answered (None where tshark does not say), correlation id."""
    tokens: list[int]
    """Sizes of raw SASL tokens; tshark knows none."""


Connections = dict[tuple[str, str], list[Seen]]
"""By client and broker; several where ports were used again, in order."""


def numbers(cell: str) -> list[int]:
    return [int(value) for value in cell.split(",")] if cell else []


def by_tshark(tshark: str, capture: Path) -> Connections:
    command = [tshark, "-n", "-r", str(capture), "-2", "-o", "tcp.reassemble_out_of_order:TRUE"]
    ports = broker_ports(capture)
    for port in ports:
        command += ["-d", f"tcp.port=={port},kafka"]
    command += ["-Y", "kafka", "-T", "fields", *(part for field in FIELDS for part in ("-e", field))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    streams: dict[int, tuple[tuple[str, str], Seen]] = {}
    for line in done.stdout.splitlines():
        cells = dict(zip(FIELDS, line.split("\t"), strict=True))
        ends = []
        for side in ("src", "dst"):
            four, six, number = cells[f"ip.{side}"], cells[f"ipv6.{side}"], cells[f"tcp.{side}port"]
            ends.append(f"{four}:{number}" if four else f"[{six}]:{number}")
        versions, ids = numbers(cells["kafka.api_version"]), numbers(cells["kafka.correlation_id"])
        keys = numbers(cells["kafka.api_key"])
        is_request = int(cells["tcp.dstport"]) in ports
        names = (ends[0], ends[1]) if is_request else (ends[1], ends[0])
        seen = streams.setdefault(int(cells["tcp.stream"]), (names, Seen([], [], [])))[1]
        if is_request:
            seen.requests.extend(zip(keys, versions, ids, strict=True))
        elif len(keys) == len(ids):
            seen.responses.extend(zip(keys, ids, strict=True))
        else:
            seen.responses.extend((None, number) for number in ids)
    return by_ends(streams)


def by_ends(streams: dict[int, tuple[tuple[str, str], Seen]]) -> Connections:
    connections: Connections = defaultdict(list)
    for _, (names, seen) in sorted(streams.items()):
        connections[names].append(seen)
    return connections


def without_tokens(their: Seen, our: Seen, tokens: int) -> Seen:
    """tshark takes raw SASL tokens for messages: its view without messages missing from ours, if their number is that
    of the tokens.
    """
    rest = iter(their.requests)
    assert all(request in rest for request in our.requests)
    answers = iter(their.responses)
    assert all(number in (answer for _, answer in answers) for _, number in our.responses)
    assert len(their.requests) + len(their.responses) - len(our.requests) - len(our.responses) <= tokens
    known = {number for _, number in our.responses}
    return Seen(our.requests, [answer for answer in their.responses if answer[1] in known], [])


def by_us(outcome: Outcome) -> Connections:
    streams: dict[int, tuple[tuple[str, str], Seen]] = {}
    for line in outcome.lines:
        if line["type"] == "problem":
            continue
        seen = streams.setdefault(line["connection"], ((line["client"], line["broker"]), Seen([], [], [])))[1]
        if line["type"] == "sasl":
            seen.tokens.append(line["size"])
        elif line["type"] == "request":
            seen.requests.append((line["api_key"], line["api_version"], line["correlation_id"]))
        else:
            seen.responses.append((line["api_key"], line["correlation_id"]))
    return by_ends(streams)


def compared(capture: Path, theirs: Connections, ours: Connections) -> list[tuple[Seen, Seen]]:
    """(their, our) view of each connection.

    tshark shows nothing of messages cut by a snap length; where all requests are cut, we do not recognize Kafka.
    """
    if not is_cut(capture):
        assert sorted(ours) == sorted(theirs)
        pairs = [pair for names, group in theirs.items() for pair in zip(group, ours[names], strict=True)]
        return [(without_tokens(their, our, len(our.tokens)) if our.tokens else their, our) for their, our in pairs]
    both_know = [names for names in theirs if names in ours]
    assert len(both_know) > len(theirs) // 2
    return [pair for names in both_know for pair in zip(theirs[names], ours[names], strict=True)]


@pytest.mark.parametrize("capture", SEEN, ids=lambda path: path.name)
def test_messages_match_those_of_tshark(capture: Path, require_tool: Callable[[str], str]) -> None:
    theirs, ours = by_tshark(require_tool("tshark"), capture), by_us(files_outcome([capture]))
    cut = is_cut(capture)
    requests = responses = 0
    for their, our in compared(capture, theirs, ours):
        rest = iter(our.requests)
        assert all(request in rest for request in their.requests)
        requests += len(their.requests)
        if cut:
            continue
        assert len(our.requests) == len(their.requests)
        assert [number for _, number in our.responses] == [number for _, number in their.responses]
        times = Counter(number for _, number in our.responses)
        for (key, number), (our_key, _) in zip(their.responses, our.responses, strict=True):
            # Where an id is reused (the Java client's SASL cycles through eight), tshark takes the first request.
            if key is not None and times[number] == 1:
                responses += 1
                assert our_key == key, f"response {number}"
    assert requests > 0
    assert cut or responses > 0
