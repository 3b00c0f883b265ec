"""Form mixed: a recording of three clients that is bounded, and failures that say why."""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import mixed_recording
from benchmarks.bodies import bodies_of, equal_share
from benchmarks.mixed_recording import _Program, record
from benchmarks.recording import RecordingError
from captures.record.distribution import DEFAULT_VERSION, SetupError, is_cached
from captures.record.programs import CLIENTS, CONFLUENT
from tests.choice import only_with_all
from tests.conftest import missing
from tests.craft.outcome import files_outcome


def program(folder: Path, code: str) -> _Program:
    return _Program("test", [sys.executable, "-c", code], folder)


def test_a_program_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    code = """import sys; sys.stdin.read(); print('{"client": "it", "records": 1234}')"""
    with program(tmp_path, code) as running:
        running.check()
        running.end()
        assert running.wait() == "it: 1,234 records"
        running.check()


def test_a_failed_program_reports_the_reason(tmp_path: Path) -> None:
    with program(tmp_path, "import sys; sys.exit('no such broker')") as running:
        with pytest.raises(SetupError, match="no such broker"):
            running.wait()
        with pytest.raises(SetupError, match="program of test failed"):
            running.check()


def test_a_program_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed_recording, "ENDING_S", 0.2)
    begin = time.monotonic()
    with program(tmp_path, "import time; time.sleep(600)") as running:
        running.end()
        with pytest.raises(SetupError, match="did not end"):
            running.wait()
    assert running._process.poll() is not None
    assert time.monotonic() - begin < 60


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> object:
        raise SetupError("no Java here")

    folders: list[Path] = []

    def temporary(prefix: str) -> str:
        folders.append(tmp_path / prefix)
        folders[-1].mkdir()
        return str(folders[-1])

    monkeypatch.setattr(mixed_recording, "java_program", refuse)
    monkeypatch.setattr(mixed_recording.tempfile, "mkdtemp", temporary)
    with pytest.raises(RecordingError, match="no Java here"):
        record(tmp_path / "mixed.pcap", 1)
    assert folders
    assert not folders[0].exists()


@only_with_all
@pytest.mark.root
def test_a_recording_has_the_intended_traffic(
    require_root: Callable[[], None], require_tool: Callable[[str], str], tmp_path: Path
) -> None:
    """All three clients, topics by id, fetch sessions, groups, commits."""
    require_root()
    for tool in ("tcpdump", "java", "go"):
        require_tool(tool)
    if not is_cached(DEFAULT_VERSION, CONFLUENT, modules=[CLIENTS / "go_load"]):
        missing("`python -m tests.integration` has not put Kafka, confluent-kafka and the Go program into the cache")
    path = tmp_path / "mixed.pcap"
    ports = record(path, 3, seconds=90)
    assert len(ports) == 1
    assert path.stat().st_size > 1_000_000
    found = files_outcome([path])
    requests = [line for line in found.lines if line["type"] == "request"]
    clients = Counter(line["client_id"].partition("-")[0] for line in requests if line["client_id"])
    assert {"java", "rdkafka", "go"} <= set(clients)
    versions: dict[str, set[int]] = defaultdict(set)
    for line in requests:
        versions[line["api"]].add(line["api_version"])
    assert max(versions["Produce"]) >= 13
    assert max(versions["Fetch"]) >= 13
    assert {"OffsetCommit", "Heartbeat", "ConsumerGroupHeartbeat", "JoinGroup", "Metadata"} <= set(versions)
    sessions = [line["body"] for line in requests if line["api"] == "Fetch" and line["body"]["session_id"] > 0]
    assert any(not body["topics"] for body in sessions)
    # A process that ends may leave a response half sent, and no client waits for its last Fetch.
    kinds = {problem["kind"] for problem in found.problems}
    assert kinds <= {"stream-cut", "request-unanswered"}, kinds
    assert not [line for line in found.lines if line.get("problems")]
    assert equal_share(bodies_of(path)) < 0.25
