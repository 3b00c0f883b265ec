"""Captures of faults and of look-alikes: their findings are those that were reviewed."""

import hashlib
import json
import re
from random import Random

import msgspec
import pytest

from kafkasniff.analysis.detectors import Detectors, run
from kafkasniff.analysis.export import Export
from tests.analysis.detectors.faults import (
    CAPTURES,
    FOLDER,
    LAYERS,
    MANNERS,
    ROOT,
    answer_file,
    answers,
    captures,
    kinds,
)
from tests.cli.console import kafkasniff

CAUSES = [
    (first, first.split()[1], name)
    for first, names in (
        line.split(": ")
        for line in """\
error clients-at-controllers: client-at-controller
error denied: rights-flap rights-revoked
error fenced-producers: transactional-id-shared
error hanging-transactions: transaction-timed-out
error missing-topics: topic-deleted topic-missing
error offsets-out-of-range: no-offset-no-reset offset-beyond-end-replayed offset-out-of-range offsets-deleted
error other-clusters: other-cluster
error oversized-messages: batch-recompressed
error repeated-deliveries: share-group-archives
error repeated-starts: poison-record record-retried streams-threads-replaced
error sasl-failures: logins-fail-in-turns users-differ
error shared-instances: instance-shared
error unanswered-requests: controller-gone fetch-wait-long
error unreached-listeners: ports-swapped
error wrong-protocol: request-too-large
warning cut-connections: connections-cut connections-dropped
warning expired-sessions: sasl-session-over
warning forgotten-connections: firewall-forgets
warning growing-lag: lag-grows poison-record-once
warning lagging-replicas: replica-limited
warning lost-members: consumer-crashes
warning malformed-messages: request-malformed
warning rebalance-storms: member-comes-and-goes
warning still-members: consumer-stands-still member-stands-still
warning stuck-stable-offsets: transaction-left-open
warning transport-trouble: link-narrow-large
warning not-leader: leaders-move leaders-move-old-client
warning late-answers: broker-pauses broker-throttled disk-slow disk-slow-for-writes logins-slow controller-slow
warning idle-members: share-group-without-state
warning throttled-clients: throttled-administrator
""".splitlines()
    )
    for name in names.split()
]
_FINDING = re.compile(r"^(error|warning|note) .*?^ {9}([a-z-]+): \d{4}-", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("capture", captures(), ids=lambda capture: capture.name)
def test_answers_match_the_reviewed_files(capture, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert answers(capture) == answer_file(capture).read_text(encoding="utf-8")


def test_origin_is_noted():
    for capture in captures():
        origin = json.loads((CAPTURES / f"{capture.name}.json").read_text(encoding="utf-8"))
        assert origin["file"] == capture.name
        assert origin["shows"], capture.name
        assert origin["clients"], capture.name
        assert origin["bytes"] == capture.stat().st_size < 300_000, capture.name
        assert origin["sha256"] == hashlib.sha256(capture.read_bytes()).hexdigest(), capture.name


def test_every_file_belongs_to_a_capture():
    names = {capture.name for capture in captures()}
    assert {file.name.removesuffix(".txt") for file in FOLDER.glob("*.txt")} == names
    others = {file.name for file in CAPTURES.iterdir()} - {"README.md"}
    assert {name.removesuffix(".json").removesuffix(".keys") for name in others} == names


def named(name):
    """Severity and detector of each finding in a reviewed file, in order."""
    return [" ".join(found) for found in _FINDING.findall((FOLDER / f"{name}.pcap.txt").read_text(encoding="utf-8"))]


def look_alike_of(name):
    for file in CAPTURES.glob("*.json"):
        if json.loads(file.read_text(encoding="utf-8"))["looks_like"] == f"{name}.pcap":
            yield file.name.removesuffix(".pcap.json")


@pytest.mark.parametrize(("first", "detector", "name"), CAUSES, ids=[name for *_, name in CAUSES])
def test_the_cause_comes_first_and_alone(first, detector, name):
    """Findings never repeat its effects, and traffic that only looks like it yields a note at most."""
    found = named(name)
    assert found[0] == first
    assert {one for one in found[1:] if not one.startswith("note ")} <= {
        "warning frequent-commits",
        "warning plaintext-credentials",
    }
    others = [other for _, one, known in CAUSES if one == detector for other in look_alike_of(known)]
    assert others
    for other in others:
        assert not {f"error {detector}", f"warning {detector}"} & set(named(other)), other


LOOK_ALIKES = [
    (capture.name.removesuffix(".pcap"), origin["looks_like"].removesuffix(".pcap"))
    for capture in captures()
    if (origin := json.loads((CAPTURES / f"{capture.name}.json").read_text(encoding="utf-8")))["looks_like"]
]


def test_what_only_looks_like_a_trouble_is_a_note_at_most():
    """Some detector that reports the trouble is silent; another may know a cause that both have."""

    def serious(one):
        return {found.split()[1] for found in named(one) if not found.startswith("note ")}

    for name, trouble in LOOK_ALIKES:
        assert not serious(trouble) or serious(trouble) - serious(name), name


NO_TROUBLE = {
    "broker-killed-requests-on-their-way",
    "close-answers-on-their-way",
    "close-answers-unread",
    "cut-file",
    "groups-with-fields-missing",
    "idle-then-written",
    "losses-at-broker",
    "members-without-partitions",
    "responses-lost-midway",
}
"""Captures of what ends well, or that lack what would show more: at most notes."""


def test_every_trouble_is_named() -> None:
    """And nothing above a note where there is none."""
    harmless = {name for name, _ in LOOK_ALIKES} | NO_TROUBLE
    for capture in captures():
        name = capture.name.removesuffix(".pcap")
        serious = [one for one in named(name) if not one.startswith("note ")]
        assert name in harmless or serious, name
        assert name not in NO_TROUBLE or not serious, name


def test_every_trouble_has_its_kind() -> None:
    """Layer and manner; the reference lists them."""
    every = list(kinds())
    assert {one.layer for one in every} <= {*LAYERS}
    assert {one.manner for one in every} <= {*MANNERS}
    found = sorted(one.capture for one in every if one.capture is not None)
    harmless = {name for name, _ in LOOK_ALIKES}
    assert sorted({*found}) == found
    assert {capture.stem for capture in captures()} - harmless == {*found} - harmless
    assert len(every) > 60


def without_numbers(findings):
    """Without the numbers of connections and exchanges, which exports do not have."""
    replace = msgspec.structs.replace
    return [
        replace(one, evidence=tuple(replace(each, connection=None, exchange=None) for each in one.evidence))
        for one in findings
    ]


SLICE = 16


@pytest.mark.extended
@pytest.mark.parametrize("name", [name for *_, name in CAUSES][::3])
def test_causes_depend_on_the_rows_alone(name, tmp_path):
    """The same findings from an export, with its rows in any order and counted in two parts."""
    path, random = CAPTURES / f"{name}.pcap", Random(name)
    only = list(dict.fromkeys(detector for _, detector, _ in CAUSES))
    assert kafkasniff("export", path, "-o", tmp_path / "out").code == 0
    captured = run([str(path)], only=only).findings
    export = Export.open(str(tmp_path / "out"))
    parts = [Detectors(only), Detectors(only)]
    for table, reading in parts[0].reads().items():
        batches = list(export.batches(table, reading)) if table in export.tables else []
        for batch in batches:
            rows = batch.take(random.sample(range(batch.num_rows), batch.num_rows))
            for start in range(0, len(rows), SLICE):
                random.choice(parts).update(rows.slice(start, SLICE), table)
    parts[0].merge(parts[1])
    assert parts[0].findings() == without_numbers(captured)
    assert captured
