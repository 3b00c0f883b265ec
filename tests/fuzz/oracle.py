"""The stream engine and Python's follower, on disturbed captures. An input is the number of a case: part of a capture,
disturbances, forged packets, options, batches. Both must yield the same outputs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from kafkasniff.engine.inspector import Inspector
from kafkasniff.packets import PacketBatch
from tests.baseline.inputs import DISTURBANCES, shipped
from tests.craft.batches import batch
from tests.craft.packet import Packet
from tests.craft.read import read_packets
from tests.craft.samples import mixed
from tests.kernel.followers import corrupted, results, split
from tests.oracle.inspector import ByPython
from tests.tls.captured import FOLDER, WITH_SECRETS, key_log
from tests.tls.reading import keys

MAX_LENGTH = 4
MEGABYTES = 512
WORDS = (b"\0",)

LONGEST = 150
"""Packets of a capture, at most."""
OPTIONS: dict[str, tuple[Any, ...]] = {
    "headers": (False, False, False, True),
    "exchanges": (True, True, True, False),
    "records": ("skip", "skip", "full"),
    "max_frame": (1 << 20, 1 << 20, 2000),
    "show_secrets": (False, False, False, True),
}


class Case(NamedTuple):
    """What both followers get."""

    name: str
    packets: PacketBatch
    sizes: list[int]
    """Packets of the batches, in turn; empty: all packets are one batch."""
    options: dict[str, Any]
    key_log: bytes | None


@functools.cache
def _sources() -> list[Path | None]:
    """All captures; None is the crafted one. Those of TLS come as often as a third of the others."""
    found: list[Path | None] = [None, *shipped()]
    tls = [path for path in shipped() if path.parent == FOLDER]
    return found + tls * (len(found) // (3 * len(tls)))


@functools.cache
def _packets(path: Path | None) -> list[Packet]:
    return mixed() if path is None else read_packets(path)


def case_of(number: int) -> Case:
    """The case of this number, the same in every run."""
    random = Random(number)
    path = random.choice(_sources())
    packets = _packets(path)
    # Half of the cases begin where the capture begins, the others in the middle of connections.
    start = random.choice((0, random.randrange(len(packets))))
    packets = packets[start : start + random.randint(10, LONGEST)]
    kinds = random.choices(list(DISTURBANCES), k=random.randint(0, 3))
    for kind in kinds:
        if not packets:
            break
        packets = DISTURBANCES[kind](packets, random)[: 2 * LONGEST]
    if random.random() < 0.4:
        packets = corrupted(packets, random)
        kinds.append("corrupted")
    options = {name: random.choice(values) for name, values in OPTIONS.items()}
    ports = sorted({port for packet in packets for port in (packet.sport, packet.dport)})
    if ports and random.random() < 0.2:
        options["ports"] = (random.choice(ports),)
    stem = "crafted" if path is None else path.stem
    secrets = key_log(stem) if stem in WITH_SECRETS and random.random() < 0.8 else None
    sizes = random.choices((1, 2, 7, 40), k=random.choice((0, 9)))
    name = " ".join([f"{number}:", stem, f"{start}+{len(packets)}", *kinds, str(options)])
    return Case(name, batch(packets), sizes, options, secrets)


def _followed(kind: type[Inspector], case: Case, batches: Iterable[PacketBatch]) -> tuple[list[Any], Any]:
    own = {} if case.key_log is None else {"keys": keys(case.key_log)}
    return results(kind, batches, **case.options, **own)


def difference(case: Case) -> str | None:
    """What differs first; None: nothing."""
    expected = _followed(ByPython, case, [case.packets])
    found = _followed(Inspector, case, split(case.packets, itertools.cycle(case.sizes)))
    # Also as text: NaN is not equal to itself.
    if found == expected or repr(found) == repr(expected):
        return None
    for place, (one, other) in enumerate(itertools.zip_longest(found[0], expected[0])):
        if one != other:
            return f"output {place}\n  engine: {one!r:.600}\n  oracle: {other!r:.600}"
    return f"summary\n  engine: {found[1]!r}\n  oracle: {expected[1]!r}"


def one_input(data: bytes) -> None:
    case = case_of(int.from_bytes(data))
    assert difference(case) is None, case.name


def seeds() -> list[bytes]:
    return [number.to_bytes(4) for number in range(40)]
