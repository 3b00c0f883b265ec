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
from tests.analysis.detectors import network_scenes as network
from tests.analysis.detectors import scenes
from tests.analysis.detectors.talks import checked
from tests.craft.conversation import START_NS, Conversation
from tests.kafka.records_craft import GZIP

FOLDER = Path(__file__).parent / "findings"
METADATA = {"topics": [{"name": "orders"}]}


class Case(NamedTuple):
    """A scene, by a name that is unique for its detector."""

    detector: str
    name: str
    scene: Callable[[], Sequence[Conversation]]
    settings: tuple[str, ...] = ()


SHOWN = [
    Case("late-answers", "later than the timeout", scenes.late, ("late-answers.timeout=3s",)),
    Case("hidden-errors", "hostile message", scenes.hostile_message),
    Case("hidden-errors", "acknowledgements refused", scenes.acknowledged_elsewhere),
    Case("hidden-errors", "one cause", scenes.one_cause),
    Case("hidden-errors", "two clients and two codes", scenes.two_causes),
    Case("hidden-errors", "40 clients, each with a group of its own", scenes.joins(26, clients=40)),
    Case("hidden-errors", "a group that does not exist", scenes.asked_for_groups(1)),
    Case("hidden-errors", "a transaction that waits for long", scenes.in_a_row(2, 30)),
    Case("metadata-storms", "storm", scenes.metadata(35, METADATA)),
    Case("all-topics", "all", scenes.all_topics),
    Case("rebalance-storms", "storm", scenes.storm),
    Case("lost-members", "lost", scenes.lost),
    Case("frequent-commits", "every 10 ms", scenes.commits(120, 0.01)),
    Case("refused-commits", "old generation", scenes.commits(2, 1, error=22)),
    Case("refused-commits", "of no member", scenes.commits(2, 1, error=25, member="")),
    Case("refused-commits", "during a rebalance", scenes.commits(1, 1, error=27)),
    Case(
        *("oversized-messages", "near the limit", scenes.produced(1, scenes.records(1, 3000))),
        ("oversized-messages.limit=3100",),
    ),
    Case("oversized-messages", "topic by name and by id", scenes.refused_by_id_and_name),
    Case("small-batches", "small", scenes.produced(40, scenes.records()), ("small-batches.at_least=40",)),
    Case(
        *("uncompressed-batches", "plain", scenes.produced(3, scenes.records(10, 1000))),
        ("uncompressed-batches.size=30000",),
    ),
    Case("repeated-sequences", "repeated", scenes.repeated(0)),
    Case("repeated-sequences", "out of order", scenes.repeated(45)),
    Case("repeated-sequences", "out of order, sent again", scenes.concurrent(3)),
    Case("repeated-sequences", "out of order, not all sent again", scenes.concurrent(2)),
    Case("repeated-sequences", "one cluster", partial(network.sequences, "one", "one")),
    Case("acks-zero", "acks 0", scenes.produced(3, scenes.records(2), acks=0)),
    Case("hanging-transactions", "late and open", scenes.hanging),
    Case("hanging-transactions", "ends in another cluster", partial(network.transactions, "other")),
    Case("throttled-clients", "throttled", scenes.produced(2, scenes.records(), throttle=600)),
    Case("empty-fetches", "empty", scenes.fetches(210, 0.01)),
    Case("unreached-listeners", "in a container", network.in_a_container),
    Case("unreached-listeners", "unknown name", network.unknown_name),
    Case("broker-gone", "three listeners of one node", network.three_listeners),
    Case("broker-gone", "restarted unseen", network.restarted_unseen),
    Case("broker-gone", "listed again", network.listed_again),
    Case("broker-gone", "restarted by its fetches", network.restarted_by_its_fetches),
    Case("broker-gone", "leader in another cluster", partial(network.moved_leader, "other")),
    Case("mixed-broker-versions", "one cluster", network.upgraded),
    Case("mixed-broker-versions", "clusters without ids", network.of_clusters_without_ids),
    Case("connection-churn", "short-lived", partial(network.short_lived, 25, 0.01), ("connection-churn.every=60s",)),
    Case("sasl-failures", "closed after a token", network.closed_after_a_token),
    Case("wrong-protocol", "always closed", network.nothing_but_closed),
    Case("encrypted-trouble", "three clients give up", network.stalled(3, 30)),
    Case("encrypted-trouble", "one client gives up", network.stalled(1, 30)),
    Case("encrypted-trouble", "resets", network.cut(3)),
    Case("encrypted-trouble", "slow handshakes", network.slow(1.2)),
    Case("slow-broker", "one of three", partial(network.brokers, (10, 60, 12))),
    Case("transport-trouble", "closed window", network.slow_reader),
    Case("skewed-partitions", "hot partition", partial(network.produced_to, 1, 16, 1, 2, known=6)),
]
"""Scenes in which the detector finds something."""

LOOK_ALIKES = [
    Case("late-answers", "allowed waits", scenes.patient),
    Case("hidden-errors", "message without an error", scenes.message_without_an_error),
    Case("hidden-errors", "transactions in a row", scenes.in_a_row(12, 3)),
    Case("metadata-storms", "slow", scenes.metadata(35, METADATA, then=0.5)),
    Case("all-topics", "one topic", scenes.metadata(6, METADATA)),
    Case("rebalance-storms", "growing group", scenes.growing),
    Case("lost-members", "orderly leave", scenes.orderly),
    Case("frequent-commits", "slow", scenes.commits(120, 0.2)),
    Case("refused-commits", "accepted", scenes.commits(3, 0.1)),
    Case("oversized-messages", "accepted", scenes.produced(1, scenes.records(1, 3000))),
    Case("small-batches", "larger", scenes.produced(40, scenes.records(2)), ("small-batches.at_least=40",)),
    Case("small-batches", "slow", scenes.produced(40, scenes.records(), then=0.05), ("small-batches.at_least=40",)),
    Case(
        *("uncompressed-batches", "gzip", scenes.produced(3, scenes.records(10, 1000, codec=GZIP))),
        ("uncompressed-batches.size=1", "uncompressed-batches.batch=0"),
    ),
    Case("repeated-sequences", "in order", scenes.in_order),
    Case("repeated-sequences", "two clusters", partial(network.sequences, "one", "other")),
    Case("acks-zero", "acks 1", scenes.produced(3, scenes.records(2), acks=1)),
    Case("hanging-transactions", "in time", scenes.in_time),
    Case("hanging-transactions", "ends at another broker", partial(network.transactions, "one")),
    Case("throttled-clients", "not throttled", scenes.produced(2, scenes.records())),
    Case("empty-fetches", "long waits", scenes.fetches(25, 0.5)),
    Case("empty-fetches", "with records", scenes.fetches(210, 0.01, scenes.records())),
    Case("unreached-listeners", "arrived", network.arrived),
    Case("broker-gone", "firewalled", network.firewalled),
    Case("broker-gone", "heartbeats", network.beating),
    Case("mixed-broker-versions", "alike", network.alike),
    Case("connection-churn", "staying", partial(network.short_lived, 25, 30)),
    Case("sasl-failures", "right password", network.right_password),
    Case("wrong-protocol", "old version that others use", network.old_version_that_others_use),
    Case("encrypted-trouble", "long polls", network.stalled(3, 0.5)),
    Case("encrypted-trouble", "quick handshakes", network.slow(0.1)),
    Case("slow-broker", "alike", partial(network.brokers, (10, 14, 12))),
    Case("slow-broker", "another cluster", partial(network.peers, "other")),
    Case("transport-trouble", "a single loss", partial(network.lossy, 40, 0.25)),
    Case("skewed-partitions", "spread", partial(network.produced_to, 4, 8, 4, 4)),
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
