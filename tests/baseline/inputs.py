"""Inputs of a baseline: the shipped captures and disturbed variants of them, the same files in every run."""

from __future__ import annotations

import functools
import shutil
import zlib
from pathlib import Path
from random import Random

from tests.craft import damage, disturb, intrude
from tests.craft.read import read_packets
from tests.craft.samples import mixed
from tests.craft.write import pcap_bytes

CAPTURES = Path(__file__).resolve().parent.parent.parent / "captures"
VARIANTS = 300
MOST_PACKETS = 400
"""Packets of a capture that its variants disturb: what differs, differs within these."""

DISTURBANCES = {
    "reordered": damage.composed(disturb.resegmented, functools.partial(disturb.reordered, reach=6)),
    "duplicated": disturb.duplicated,
    "retransmitted": damage.composed(disturb.resegmented, disturb.retransmitted, disturb.reordered),
    "merged": disturb.merged,
    "overlapped": damage.composed(disturb.resegmented, disturb.overlapped, disturb.reordered),
    "wrapped": damage.composed(disturb.wrapped, disturb.kept_alive),
    "everything": damage.composed(
        disturb.wrapped,
        disturb.resegmented,
        disturb.retransmitted,
        disturb.reordered,
        disturb.kept_alive,
        disturb.duplicated,
    ),
    "skewed": disturb.skewed,
    "reused": disturb.reused,
    "forged-ends": intrude.forged_ends,
    "intruded": damage.composed(
        disturb.resegmented, disturb.reordered, intrude.forged_resets, intrude.out_of_window, intrude.conflicting
    ),
    "lossy": damage.lossy,
    "lossy-in-runs": damage.lossy_in_runs,
    "lossy-reordered": damage.composed(damage.lossy, disturb.retransmitted, disturb.reordered),
    "lossy-without-handshake": damage.composed(disturb.without_handshake, damage.lossy),
    "unacknowledged": damage.unacknowledged,
    "snapped": damage.snapped,
    "cut": damage.composed(disturb.resegmented, damage.cut),
    "late": damage.composed(disturb.resegmented, damage.late),
    "late-at-request": damage.late_at_request,
    "late-and-lossy": damage.composed(disturb.resegmented, damage.late, damage.lossy),
    "requests-only": damage.composed(damage.requests_only, disturb.resegmented, damage.lossy),
    "responses-only": damage.composed(damage.responses_only, disturb.resegmented, damage.late),
}


def shipped() -> list[Path]:
    """All captures of the checkout, those of faults and TLS included."""
    return sorted(path for path in CAPTURES.rglob("*") if ".pcap" in path.name and not path.name.endswith(".json"))


def make_inputs(folder: Path, variants: int = VARIANTS) -> list[str]:
    """Copy the captures into a folder and write the variants beside them; returns the names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for path in shipped():
        names.append(f"{path.parent.name}-{path.name}" if path.parent != CAPTURES else path.name)
        shutil.copy2(path, folder / names[-1])
    names += _variants(folder, variants)
    return names


def _variants(folder: Path, count: int) -> list[str]:
    names: list[str] = []
    sources = [None, *shipped()]
    for number in range(count):
        # Both lists turn at their own speed, so that each capture meets many disturbances.
        path = sources[number % len(sources)]
        kind = list(DISTURBANCES)[(number + number // len(sources)) % len(DISTURBANCES)]
        packets = (mixed() if path is None else read_packets(path))[:MOST_PACKETS]
        stem = "crafted" if path is None else path.name.partition(".")[0]
        random = Random(zlib.crc32(f"{stem} {kind} {number}".encode()))
        name = f"variant-{number:03}-{stem}-{kind}.pcap"
        (folder / name).write_bytes(pcap_bytes(DISTURBANCES[kind](packets, random), nanoseconds=True))
        names.append(name)
    return names
