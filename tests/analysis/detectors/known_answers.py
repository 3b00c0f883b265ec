"""Scenes of which each shows one detector its trouble, or only something that looks like it.

More of both are in ``captures/faults``. Each finding is in ``findings/DETECTOR.txt``, as captures and as their exports
show it. ``python -m
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

import msgspec

from kafkasniff.analysis.detectors import Checked, Finding, detector_names, run
from tests.analysis.detectors import cluster_scenes as clusters
from tests.analysis.detectors import network_scenes as network
from tests.analysis.detectors import scenes
from tests.analysis.detectors.talks import checked
from tests.cli.console import kafkasniff
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
    Case("undecoded-traffic", "half", scenes.one_direction),
    Case("undecoded-traffic", "nothing", scenes.other_direction),
    Case("unanswered-requests", "unanswered", scenes.unanswered),
    Case("unanswered-requests", "stopped broker", scenes.stopped),
    Case("unanswered-requests", "cut off, and the client continued", scenes.cut_off("client", again=True)),
    Case("unanswered-requests", "cut off by the broker", scenes.cut_off("broker")),
    Case("late-answers", "late", scenes.late),
    Case("late-answers", "later than the timeout", scenes.late, ("late-answers.timeout=3s",)),
    Case("hidden-errors", "partition", scenes.hidden),
    Case("hidden-errors", "message of a record", scenes.refused_record),
    Case("hidden-errors", "hostile message", scenes.hostile_message),
    Case("denied", "group", partial(scenes.refused_coordinator, "workers", 0)),
    Case("denied", "transactional id", partial(scenes.refused_coordinator, "payments", 1)),
    Case("hidden-errors", "one cause", scenes.one_cause),
    Case("hidden-errors", "two clients and two codes", scenes.two_causes),
    Case("hidden-errors", "one client of a group with another protocol", scenes.joins(23)),
    Case("hidden-errors", "40 clients, each with a group of its own", scenes.joins(26, clients=40)),
    Case("hidden-errors", "no coordinator for 40 seconds", scenes.coordinator_missing(40, found=False)),
    Case("hidden-errors", "no coordinator for 8 seconds, then success", scenes.coordinator_missing(8, found=True)),
    Case("hidden-errors", "a group that does not exist, again and again", scenes.asked_for_groups(25)),
    Case("hidden-errors", "a group that does not exist", scenes.asked_for_groups(1)),
    Case("hidden-errors", "deleted topic", scenes.deleted_topic),
    Case("hidden-errors", "a cause and its effect", scenes.failed_disk),
    Case("not-leader", "stale", scenes.stale),
    Case("not-leader", "moved", scenes.moved),
    Case("not-leader", "stuck", scenes.stale, ("not-leader.stuck=8s",)),
    Case("metadata-storms", "storm", scenes.metadata(35, METADATA)),
    Case("all-topics", "all", scenes.all_topics),
    Case("rebalance-storms", "storm", scenes.storm),
    Case("lost-members", "lost", scenes.lost),
    Case("frequent-commits", "every 10 ms", scenes.commits(120, 0.01)),
    Case("refused-commits", "old generation", scenes.commits(2, 1, error=22)),
    Case("refused-commits", "of no member", scenes.commits(2, 1, error=25, member="")),
    Case("refused-commits", "during a rebalance", scenes.commits(1, 1, error=27)),
    Case("oversized-messages", "refused", scenes.produced(2, scenes.records(1, 3000), error=10)),
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
    Case("repeated-sequences", "one cluster", partial(clusters.sequences, "one", "one")),
    Case("repeated-sequences", "unknown clusters", partial(clusters.sequences, None, None)),
    Case("repeated-sequences", "beside another", lambda: [*clusters.sequences("one", "one"), *clusters.others()]),
    Case("acks-zero", "acks 0", scenes.produced(3, scenes.records(2), acks=0)),
    Case("hanging-transactions", "late and open", scenes.hanging),
    Case("hanging-transactions", "ends in another cluster", partial(clusters.transactions, "other")),
    Case("fenced-producers", "fenced", scenes.fenced(3)),
    Case("throttled-clients", "throttled", scenes.produced(2, scenes.records(), throttle=600)),
    Case("empty-fetches", "empty", scenes.fetches(210, 0.01)),
    Case("unreached-listeners", "refused", network.refused),
    Case("unreached-listeners", "unanswered", network.unanswered),
    Case("unreached-listeners", "in a container", network.in_a_container),
    Case("unreached-listeners", "unknown name", network.unknown_name),
    Case("broker-gone", "killed", network.killed),
    Case("broker-gone", "three listeners of one node", network.three_listeners),
    Case("broker-gone", "restarted", network.restarted),
    Case("broker-gone", "restarted unseen", network.restarted_unseen),
    Case("broker-gone", "accepts while it dies", network.accepted_by_a_dying_broker),
    Case("broker-gone", "listed again", network.listed_again),
    Case("broker-gone", "registered again", network.registered_again),
    Case("broker-gone", "restarted by its epochs", network.restarted_by_its_epochs),
    Case("broker-gone", "restarted by its fetches", network.restarted_by_its_fetches),
    Case("broker-gone", "leader moved", partial(clusters.moved_leader, "one")),
    Case("broker-gone", "leader in another cluster", partial(clusters.moved_leader, "other")),
    Case("mixed-broker-versions", "one cluster", network.upgraded),
    Case("mixed-broker-versions", "cluster without id", network.upgraded_without_id),
    Case("mixed-broker-versions", "clusters without ids", network.of_clusters_without_ids),
    Case("mixed-broker-versions", "unknown clusters", network.perhaps_upgraded),
    Case("connection-churn", "short-lived", network.churning, ("connection-churn.every=60s",)),
    Case("connection-churn", "refused", network.churning_for_a_mechanism, ("connection-churn.every=60s",)),
    Case("sasl-failures", "password", network.wrong_password),
    Case("sasl-failures", "closed after a token", network.closed_after_a_token),
    Case("wrong-protocol", "web server", network.web_server),
    Case("wrong-protocol", "TLS at plaintext", network.tls_at_plaintext),
    Case("wrong-protocol", "always closed", network.nothing_but_closed),
    Case("wrong-protocol", "closed for one client", network.closed_though_others_work),
    Case("wrong-protocol", "closed where TLS works", network.tls_where_tls_works),
    Case("tls-failures", "encrypted alert", network.refusing_with_an_encrypted_alert),
    Case("tls-failures", "no alert", network.leaving_in_the_handshake),
    Case("slow-broker", "one of three", network.one_is_slow),
    Case("slow-broker", "in its cluster", partial(clusters.peers, "one")),
    Case("transport-trouble", "losses", network.losses),
    Case("transport-trouble", "closed window", network.slow_reader),
    Case("transport-trouble", "distance", network.another_continent),
    Case("skewed-partitions", "hot partition", network.hot_partition),
]
"""Scenes in which the detector finds something."""

LOOK_ALIKES = [
    Case("denied", "another refusal", scenes.one_cause),
    Case("undecoded-traffic", "stopped broker", scenes.stopped),
    Case("undecoded-traffic", "acks 0", scenes.silent_by_request),
    Case("unanswered-requests", "waiting consumer", scenes.waiting_consumer),
    Case("unanswered-requests", "the program ended", scenes.cut_off("client")),
    Case("unanswered-requests", "one direction", scenes.one_direction),
    Case("unanswered-requests", "one direction from the middle on", scenes.lost_midway),
    Case("late-answers", "allowed waits", scenes.patient),
    Case("hidden-errors", "errors that pass", scenes.transient_errors),
    Case("hidden-errors", "message without an error", scenes.message_without_an_error),
    Case("hidden-errors", "usual first join", scenes.joins(79, 0)),
    Case("hidden-errors", "rebalances that pass", scenes.joins(27, 27, 0, then=3)),
    Case("hidden-errors", "coordinator found at last", scenes.coordinator_missing(2, found=True)),
    Case("not-leader", "success", scenes.in_order),
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
    Case("repeated-sequences", "two clusters", partial(clusters.sequences, "one", "other")),
    Case("repeated-sequences", "a cluster unknown", lambda: [*clusters.sequences("one", None), *clusters.others()]),
    Case("acks-zero", "acks 1", scenes.produced(3, scenes.records(2), acks=1)),
    Case("hanging-transactions", "in time", scenes.in_time),
    Case("hanging-transactions", "ends at another broker", partial(clusters.transactions, "one")),
    Case("fenced-producers", "concurrent transactions", scenes.fenced(3, error=51)),
    Case("throttled-clients", "not throttled", scenes.produced(2, scenes.records())),
    Case("empty-fetches", "long waits", scenes.fetches(25, 0.5)),
    Case("empty-fetches", "with records", scenes.fetches(210, 0.01, scenes.records())),
    Case("unreached-listeners", "refused at first", network.refused_at_first),
    Case("unreached-listeners", "arrived", network.arrived),
    Case("broker-gone", "firewalled", network.firewalled),
    Case("broker-gone", "staying", network.staying),
    Case("broker-gone", "heartbeats", network.beating),
    Case("broker-gone", "wrong password", network.wrong_password),
    Case("mixed-broker-versions", "alike", network.alike),
    Case("connection-churn", "staying", network.staying),
    Case("sasl-failures", "right password", network.right_password),
    Case("wrong-protocol", "old version at a dying broker", network.old_version_at_a_dying_broker),
    Case("wrong-protocol", "old version that others use", network.old_version_that_others_use),
    Case("wrong-protocol", "dying broker", network.accepted_by_a_dying_broker),
    Case("wrong-protocol", "SASL", network.right_password),
    Case("tls-failures", "TLS at plaintext", network.tls_at_plaintext),
    Case("tls-failures", "closed where TLS works", network.tls_where_tls_works),
    Case("slow-broker", "alike", network.all_alike),
    Case("slow-broker", "another cluster", partial(clusters.peers, "other")),
    Case("transport-trouble", "a single loss", network.a_single_loss),
    Case("transport-trouble", "busy broker", network.busy_broker),
    Case("skewed-partitions", "spread", network.spread),
]
"""Scenes in which the detector must find nothing."""

NAMES = sorted({case.detector for case in SHOWN})


def cases_of(cases: Sequence[Case], detector: str) -> list[Case]:
    return [case for case in cases if case.detector == detector]


def look(case: Case, path: Path) -> Checked:
    """What the case's detector says about a capture of its scene, written to `path`."""
    return checked(path, case.scene(), case.detector, settings=case.settings)


def without_numbers(findings: Sequence[Finding]) -> list[Finding]:
    """Without the numbers of connections and exchanges, which exports do not have."""
    replace = msgspec.structs.replace
    return [
        replace(one, evidence=tuple(replace(each, connection=None, exchange=None) for each in one.evidence))
        for one in findings
    ]


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


def answer(detector: str, folder: Path, *, exports: bool = True) -> str:
    """Text of the answer file of a detector, or only what captures show. Captures and exports go to `folder`."""
    lines = []
    for number, case in enumerate(cases_of(SHOWN, detector)):
        path, out = folder / f"{number}.pcap", folder / f"{number}"
        found = look(case, path)
        lines += [f"== {case.name}", *(line for one in found.findings for line in described(one)), *found.notes]
        if not exports:
            continue
        assert kafkasniff("export", path, "-o", out).code == 0
        exported = run([str(out)], only=[detector], settings=case.settings)
        if exported.findings != without_numbers(found.findings):
            findings = [f"in the export: {one.severity}: {one.title}" for one in exported.findings]
            lines += findings or ["not in the export"]
        lines += [f"note for the export: {note.replace(str(out), 'FOLDER')}" for note in exported.notes]
    return "\n".join(lines) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for detector in sys.argv[1:] or NAMES:
        assert detector in detector_names()
        with tempfile.TemporaryDirectory() as folder:
            (FOLDER / f"{detector}.txt").write_text(answer(detector, Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
