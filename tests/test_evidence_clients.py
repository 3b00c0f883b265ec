"""Golden lines match the clients' own logs and reports (captures/NAME.log.jsonl)."""

from __future__ import annotations

import functools
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.evidence.decoded import Decoded
from tests.evidence.match import golden_lines, open_lines
from tests.evidence.reports import CHECKS
from tests.evidence.wire import frames
from tests.golden import ROOT, captures

HEADER = ("api_key", "api_version", "correlation_id", "client_id", "size", "client_port")
"""What a client's log may contain of a message; clients differ."""


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


@functools.cache
def manifest(capture):
    entries = json.loads((capture.parent / "manifest.json").read_text(encoding="utf-8"))["captures"]
    return next(entry for entry in entries if entry["file"] == capture.name)


def sidecar(capture):
    lines = (capture.parent / manifest(capture)["sidecar"]).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def was_cut(capture):
    return any(frame.cut for frame in frames(capture))


def reported(lines, names):
    return Counter(tuple(line[name] for name in names) for line in lines)


@pytest.mark.parametrize("kind", ["request", "response"])
def test_messages_of_the_clients_log(capture_path: Path, kind):
    """Each logged message has its line; where the log is complete, each line is also logged."""
    logged = [entry for entry in sidecar(capture_path) if entry["kind"] == kind]
    if not logged:
        pytest.skip("this client logs none")
    names = [name for name in HEADER if all(name in entry for entry in logged)]
    assert {"api_key", "api_version"} < set(names)
    lines = [
        {**line, "client_port": int(line["client"].rpartition(":")[2])}
        for line in golden_lines(capture_path)
        if line["type"] == kind
    ]
    theirs, ours = reported(logged, names), reported(lines, names)
    if not was_cut(capture_path):
        assert theirs <= ours
    elif kind == "request":
        assert ours <= theirs
    if manifest(capture_path)["requests_complete"]:
        assert kind == "response" or theirs == ours
    if manifest(capture_path)["requests_complete"] or was_cut(capture_path):
        # A response may arrive when its client no longer listens.
        assert (ours - theirs).total() <= max(6, ours.total() // 50)


def test_reports(capture_path: Path):
    if was_cut(capture_path):
        pytest.skip("the capture does not hold the bytes that would show it")
    seen = Decoded(golden_lines(capture_path), open_lines(capture_path))
    reports = [entry for entry in sidecar(capture_path) if entry["kind"] not in {"request", "response"}]
    assert reports
    wrong = [entry for entry in reports if not CHECKS[entry["kind"]](seen, entry)]
    assert not wrong


def test_every_kind_of_report_occurs():
    """A check without data could be wrong unnoticed."""
    kinds = {entry["kind"] for capture in captures() for entry in sidecar(capture)}
    assert kinds - {"request", "response"} == set(CHECKS)


CHANGES = {
    "offset": lambda value: value + 1000,
    "timestamp": lambda value: value + 1,
    "value": lambda value: "another value",
    "key": lambda value: "another key",
    "headers": lambda value: [["another", "header"]],
    "topic": lambda value: "another-topic",
    "partition": lambda value: value + 1000,
}


@pytest.mark.parametrize("name", ["java-codecs.pcap", "librdkafka-codecs.pcap", "old-message-formats.pcap"])
def test_a_wrong_report_is_detected(name):
    capture = ROOT / "captures" / name
    seen = Decoded(golden_lines(capture), open_lines(capture))
    tried = set()
    for entry in sidecar(capture):
        if entry["kind"] not in {"produced", "consumed"} or entry.get("timestamp") is None:
            continue
        for field, change in CHANGES.items():
            if entry.get(field) is not None:
                tried.add((entry["kind"], field))
                assert not CHECKS[entry["kind"]](seen, {**entry, field: change(entry[field])}), field
    assert len(tried) == 2 * len(CHANGES)


@pytest.mark.parametrize("capture", [one for one in captures() if "codecs" in one.name], ids=lambda one: one.name)
def test_every_codec_of_a_producer_occurs(capture):
    seen = Decoded(golden_lines(capture), open_lines(capture))
    wanted = {(entry["topic"], entry["codec"]) for entry in sidecar(capture) if entry["kind"] == "produced"}
    assert len(wanted) == 5
    assert wanted <= {(one.topic, one.batch["compression"]) for one in seen.produced}


def test_every_other_check_can_fail():
    """Each check fails for a capture of something else."""
    empty = Decoded((), ())
    for capture in captures():
        for entry in sidecar(capture):
            if entry["kind"] in CHECKS and entry["kind"] != "client" and entry.get("partitions") != []:
                assert not CHECKS[entry["kind"]](empty, entry), entry
