"""Scenes of which each shows one detector its trouble, or only something that looks like it.

More of both are in ``captures/faults``. Each finding is in ``findings/DETECTOR.txt``. ``python -m
tests.analysis.detectors.known_answers [DETECTOR…]`` regenerates these files: compare them with the scenes before you
commit.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kafkasniff.analysis.detectors import Checked, Finding, detector_names
from tests.analysis.detectors import scenes
from tests.analysis.detectors.talks import checked
from tests.craft.conversation import START_NS, Conversation
from tests.kafka.records_craft import GZIP

FOLDER = Path(__file__).parent / "findings"


class Case(NamedTuple):
    """A scene, by a name that is unique for its detector."""

    detector: str
    name: str
    scene: Callable[[], Sequence[Conversation]]
    settings: tuple[str, ...] = ()


SHOWN = [
    Case("hidden-errors", "hostile message", partial(scenes.reported, 87, scenes.HOSTILE)),
    Case("metadata-storms", "storm", partial(scenes.metadata, 35)),
    Case("all-topics", "all", scenes.all_topics),
    Case("lost-members", "lost", scenes.lost),
    Case("refused-commits", "old generation", partial(scenes.commits, 2, 1, error=22)),
    Case("refused-commits", "of no member", partial(scenes.commits, 2, 1, error=25, member="")),
    Case("refused-commits", "during a rebalance", partial(scenes.commits, 1, 1, error=27)),
    Case("small-batches", "small", partial(scenes.produced, 40, scenes.records()), ("small-batches.at_least=40",)),
    Case(
        *("uncompressed-batches", "plain", partial(scenes.produced, 3, scenes.records(10, 1000))),
        ("uncompressed-batches.size=30000",),
    ),
    Case("acks-zero", "acks 0", partial(scenes.produced, 3, scenes.records(2), acks=0)),
    Case("throttled-clients", "throttled", partial(scenes.produced, 2, scenes.records(), throttle=600)),
    Case("empty-fetches", "empty", partial(scenes.fetches, 210, 0.01)),
    Case("connection-churn", "short-lived", partial(scenes.short_lived, 25, 0.01), ("connection-churn.every=60s",)),
    Case("encrypted-trouble", "three clients give up", partial(scenes.stalled, 3, 30)),
    Case("encrypted-trouble", "one client gives up", partial(scenes.stalled, 1, 30)),
    Case("encrypted-trouble", "resets", partial(scenes.cut, 3)),
    Case("encrypted-trouble", "slow handshakes", partial(scenes.slow, 1.2)),
    Case("slow-broker", "one of three", partial(scenes.brokers, (10, 60, 12))),
    Case("skewed-partitions", "hot partition", partial(scenes.produced_to, 1, 16, 1, 2, known=6)),
]
"""Scenes in which the detector finds something."""

LOOK_ALIKES = [
    Case("hidden-errors", "message without an error", partial(scenes.reported, 0, "all went well")),
    Case("metadata-storms", "slow", partial(scenes.metadata, 35, then=0.5)),
    Case("all-topics", "one topic", partial(scenes.metadata, 6)),
    Case("lost-members", "orderly leave", scenes.orderly),
    Case("refused-commits", "accepted", partial(scenes.commits, 3, 0.1)),
    Case("small-batches", "larger", partial(scenes.produced, 40, scenes.records(2)), ("small-batches.at_least=40",)),
    Case(
        "small-batches",
        "slow",
        partial(scenes.produced, 40, scenes.records(), then=0.05),
        ("small-batches.at_least=40",),
    ),
    Case(
        *("uncompressed-batches", "gzip", partial(scenes.produced, 3, scenes.records(10, 1000, codec=GZIP))),
        ("uncompressed-batches.size=1", "uncompressed-batches.batch=0"),
    ),
    Case("acks-zero", "acks 1", partial(scenes.produced, 3, scenes.records(2), acks=1)),
    Case("throttled-clients", "not throttled", partial(scenes.produced, 2, scenes.records())),
    Case("empty-fetches", "long waits", partial(scenes.fetches, 25, 0.5)),
    Case("empty-fetches", "with records", partial(scenes.fetches, 210, 0.01, scenes.records())),
    Case("connection-churn", "staying", partial(scenes.short_lived, 25, 30)),
    Case("encrypted-trouble", "long polls", partial(scenes.stalled, 3, 0.5)),
    Case("encrypted-trouble", "quick handshakes", partial(scenes.slow, 0.1)),
    Case("slow-broker", "alike", partial(scenes.brokers, (10, 14, 12))),
    Case("slow-broker", "another cluster", partial(scenes.peers, "other")),
    Case("skewed-partitions", "spread", partial(scenes.produced_to, 4, 8, 4, 4)),
]
"""Scenes in which the detector must find nothing."""

NAMES = sorted({case.detector for case in SHOWN})


def cases_of(cases: Sequence[Case], detector: str) -> list[Case]:
    return [case for case in cases if case.detector == detector]


def look(case: Case, path: Path) -> Checked:
    """What the case's detector says about a capture of its scene, written to `path`."""
    return checked(path, case.scene(), case.detector, settings=case.settings)


def described(finding: Finding) -> list[str]:
    """All that a finding says, line by line."""
    first, last = (None if time is None else (time - START_NS) / 1e9 for time in (finding.first, finding.last))
    lines = [
        f"{finding.severity}: {finding.title}",
        f"  {finding.meaning}",
        f"  {finding.advice}",
        f"  subject {json.dumps(finding.subject)}",
        f"  values {json.dumps(finding.values)}",
        f"  {finding.count} times, seconds {first} to {last}",
    ]
    for one in finding.evidence:
        seconds = None if one.time_ns is None else (one.time_ns - START_NS) / 1e9
        lines.append(f"  conn {one.connection} #{one.exchange} at {seconds} {one.note}".rstrip())
    return lines


def answer(detector: str, folder: Path) -> str:
    """Text of the answer file of a detector. Captures go to `folder`."""
    lines = []
    for number, case in enumerate(cases_of(SHOWN, detector)):
        found = look(case, folder / f"{number}.pcap")
        lines += [f"== {case.name}", *(line for one in found.findings for line in described(one)), *found.notes]
    return "\n".join(lines) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for detector in sys.argv[1:] or NAMES:
        assert detector in detector_names()
        with tempfile.TemporaryDirectory() as folder:
            (FOLDER / f"{detector}.txt").write_text(answer(detector, Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
