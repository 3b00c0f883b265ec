"""Golden lines match the clients' own logs and reports (captures/NAME.log.jsonl)."""

from __future__ import annotations

import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.evidence.decoded import Decoded
from tests.evidence.match import golden_lines, open_lines
from tests.evidence.reports import CHECKS
from tests.golden import captures
from tests.test_evidence import _in_the_checkout, was_cut

__all__ = ["_in_the_checkout"]

pytestmark = pytest.mark.extended

HEADER = ("api_key", "api_version", "correlation_id", "client_id", "size", "client_port")
"""What a client's log may contain of a message; clients differ."""


@functools.cache
def manifest(capture: Path) -> dict[str, Any]:
    entries = json.loads((capture.parent / "manifest.json").read_text(encoding="utf-8"))["captures"]
    return next(entry for entry in entries if entry["file"] == capture.name)


@functools.cache
def sidecar(capture: Path) -> list[dict[str, Any]]:
    lines = (capture.parent / manifest(capture)["sidecar"]).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("kind", ["request", "response"])
def test_messages_of_the_clients_log(capture_path: Path, kind: str) -> None:
    """Each logged message has its line; where the log is complete, each line is also logged."""
    logged = [entry for entry in sidecar(capture_path) if entry["kind"] == kind]
    if not logged:
        return  # this client logs none
    names = [name for name in HEADER if all(name in entry for entry in logged)]
    assert {"api_key", "api_version"} < set(names)
    lines = [
        {**line, "client_port": int(line["client"].rpartition(":")[2])}
        for line in golden_lines(capture_path)
        if line["type"] == kind
    ]
    theirs, ours = (Counter(tuple(line[name] for name in names) for line in some) for some in (logged, lines))
    if not was_cut(capture_path):
        assert theirs <= ours
    elif kind == "request":
        assert ours <= theirs
    if manifest(capture_path)["requests_complete"]:
        assert kind == "response" or theirs == ours
    if manifest(capture_path)["requests_complete"] or was_cut(capture_path):
        # A response may arrive when its client no longer listens.
        assert (ours - theirs).total() <= max(6, ours.total() // 50)


def reports(capture: Path) -> list[dict[str, Any]]:
    return [entry for entry in sidecar(capture) if entry["kind"] in CHECKS]


def test_reports(capture_path: Path) -> None:
    if was_cut(capture_path):
        return  # the capture lacks the bytes that would show it
    seen = Decoded(golden_lines(capture_path), open_lines(capture_path))
    assert [entry for entry in reports(capture_path) if not CHECKS[entry["kind"]](seen, entry)] == []


def test_every_kind_of_report_occurs_and_can_fail() -> None:
    empty = Decoded((), ())
    found = [entry for capture in captures() for entry in reports(capture)]
    assert {entry["kind"] for entry in found} == set(CHECKS)
    for entry in found:
        if entry["kind"] != "client" and entry.get("partitions") != []:
            assert not CHECKS[entry["kind"]](empty, entry), entry
