"""The connections in a file of saved packets, as tcpdump reads it: how each began and ended, and who sent data."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_SEGMENT = re.compile(r"^(\d+)\.(\d{9}) IP 127\.0\.0\.1\.(\d+) > 127\.0\.0\.1\.(\d+): Flags \[([A-Z.]+)\]")
_MARKED = "tcp[tcpflags] & (tcp-syn|tcp-fin|tcp-rst) != 0"
_WITH_DATA = "ip[2:2] - ((ip[0] & 0xf) << 2) - ((tcp[12] & 0xf0) >> 2) != 0"

Place = tuple[int, int]
"""Ports of client and broker, because clients of different listeners may have the same port."""

Segment = tuple[int, bool, str]
"""Time (ns), whether the client sent it, and flags."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One attempt to connect and its result. A client's port may be reused within seconds."""

    place: Place
    begun_ns: int
    """Time of its SYN."""
    marked: tuple[Segment, ...]
    """Segments with SYN, FIN or RST, in order; the SYN is the first."""
    client_spoke: bool
    """Whether the client sent any data."""

    @property
    def over_ns(self) -> tuple[int, ...]:
        """Times of all FINs and RSTs."""
        return tuple(time for time, _, flags in self.marked if set("FR") & set(flags))

    @property
    def refused(self) -> bool:
        """Nobody listened."""
        return [(by_client, flags) for _, by_client, flags in self.marked] == [(True, "S"), (False, "R.")]

    @property
    def silent(self) -> bool:
        """The connection was established, and ended before the client had sent anything.

        A killed broker's listeners are closed one after the other, as are its connections. A client that reconnects
        quickly is accepted by the kernel and reset at once.
        """
        return (False, "S.") in {one[1:] for one in self.marked} and not self.client_spoke

    @property
    def broken_off(self) -> bool:
        """The broker ended it, or the kernel did in its name."""
        return next((not by_client for _, by_client, flags in self.marked if set("FR") & set(flags)), False)


@cache
def connections(kept: Path, listeners: frozenset[int]) -> tuple[Connection, ...]:
    """All connections; those with the same ports in order."""
    marked, with_data = _segments(kept, listeners, _MARKED), _segments(kept, listeners, _WITH_DATA)
    found = []
    for place, segments in marked.items():
        begins = [index for index, (_, by_client, flags) in enumerate(segments) if by_client and flags == "S"]
        for begin, end in zip(begins, [*begins[1:], len(segments)], strict=True):
            begun = segments[begin][0]
            next_begun = segments[end][0] if end < len(segments) else None
            spoke = any(
                by_client and begun <= time and (next_begun is None or time < next_begun)
                for time, by_client, _ in with_data.get(place, ())
            )
            found.append(Connection(place, begun, tuple(segments[begin:end]), spoke))
    return tuple(found)


def _segments(kept: Path, listeners: Collection[int], bpf: str) -> dict[Place, list[Segment]]:
    command = ["tcpdump", "-nn", "-tt", "--nano", "-r", str(kept), bpf]
    found = defaultdict(list)
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        segment = _SEGMENT.match(line)
        assert segment, line
        seconds, fraction, sender, receiver = (int(one) for one in segment.groups()[:4])
        by_client = receiver in listeners
        place = (sender, receiver) if by_client else (receiver, sender)
        found[place].append((seconds * 1_000_000_000 + fraction, by_client, segment[5]))
    return dict(found)
