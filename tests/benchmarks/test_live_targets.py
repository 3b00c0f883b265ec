"""The live targets: what counts as held, a soak that passes or not, and the ring that a capture is laid out in."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks import live_soak, live_targets
from benchmarks.live_captures import small
from benchmarks.live_loads import Offered
from benchmarks.live_run import Result
from benchmarks.live_stages import STAGES, RecordedInterface, RecordedRing, measure
from benchmarks.live_tools import Reported
from benchmarks.processes import Usage
from kafkasniff.capture import open_captures
from kafkasniff.capture.live.live import LiveSource
from kafkasniff.tcp.packets import COLUMNS, PacketBatch
from tests.conftest import missing

ROOT = Path(__file__).resolve().parents[2]


def replay(rate: float, *, shown: int = 200, lost: int = 0, before: int = 0) -> Result:
    offered = Offered(2.0, int(2 * rate), 60_000, before, 200, 200)
    usage = Usage(10.0, 2.5, {}, 80_000_000, 70_000_000, {}, {}, 0, 50)
    return Result(
        *(f"C {rate:g} packets/s", "C", rate, "text", offered, Reported(requests=shown, lost=lost)),
        *(usage, 0.2, True, False, 0, 0.1),
    )


def test_the_highest_rate_below_which_all_are_held() -> None:
    runs = [replay(100_000), replay(300_000), replay(200_000, shown=199)]
    assert live_targets.verdicts(runs) == ["text: 100,000 packets/s held; target ≥ 200,000: no"]
    runs[2] = replay(200_000)
    assert live_targets.verdicts(runs) == ["text: 300,000 packets/s held; target ≥ 200,000: yes"]


def test_packets_that_never_arrived_are_not_held() -> None:
    assert live_targets.is_held(replay(100))
    assert not live_targets.is_held(replay(100, before=1))
    assert not live_targets.is_held(replay(100, lost=1))
    assert live_targets.row(replay(100, lost=2, before=1))[3:5] == ["3", "100% of 200"]


def test_requests_of_clients_that_are_shown() -> None:
    found = dataclasses.replace(replay(0, shown=199), form="small", rate=None)
    assert live_targets.verdicts([found]) == ["text: 99.50% of requests from librdkafka shown; target 100%: no"]
    found = dataclasses.replace(found, reported=Reported(requests=200, lost=0))
    assert live_targets.verdicts([found]) == ["text: 100.00% of requests from librdkafka shown; target 100%: yes"]


def soaked(sizes: list[int], **reported: object) -> live_soak.Soak:
    memory = [(float(second), size * 10**6) for second, size in enumerate(sizes, 1)]
    shown = Reported(**{"requests": 10, "lost": 0, **reported})  # type: ignore[arg-type]
    return live_soak.Soak("text", 10.0, 30, 10, shown, 0, 1.0, memory, (None, None, None), 0)


def test_faults_of_a_soak() -> None:
    # It grows at first, and then no more.
    assert soaked([50, 100, 200, *[210] * 9]).faults() == []
    assert soaked([*range(100, 400, 10)]).faults() == ["memory grew from 205 to 355 MB"]
    assert soaked([1, 1], requests=9).faults() == ["9 of 10 requests shown"]
    assert soaked([1, 1], lost=3).faults() == ["3 packets lost, 0 not delivered"]
    assert soaked([1, 1], problems={"live-behind": 2, "api-unknown": 5}).faults() == ["live-behind: 2"]


@pytest.mark.root
def test_a_short_soak(require_root: Callable[[], None], require_tool: Callable[[str], str], tmp_path: Path) -> None:
    require_root()
    require_tool("tcpreplay")
    require_tool("ip")
    command = [sys.executable, "-m", "benchmarks.live_soak", "--minutes", "0.03", "--rate", "500"]
    command += ["--connections", "20", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, cwd=ROOT)
    if "it needs root" in done.stderr:
        missing("network namespaces need root or CAP_SYS_ADMIN")
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert found["requests_shown"] == found["requests"] > 250, done.stderr
    assert found["lost"] == 0
    assert not (tmp_path / "live" / "soak").exists()


# The ring that a capture is laid out in


def columns_of(batches: list[PacketBatch]) -> dict[str, list[int]]:
    return {name: np.concatenate([getattr(batch, name) for batch in batches]).tolist() for name in COLUMNS}


@pytest.mark.parametrize("block", [128 << 10, 1 << 20])
def test_a_ring_has_the_packets_of_the_capture(block: int, tmp_path: Path) -> None:
    path = small(tmp_path, packets=9_000, connections=100).path
    ring = RecordedRing(path.read_bytes(), block)
    assert ring.blocks > 1
    with LiveSource([RecordedInterface(ring, "lo", 0)]) as source:
        found = list(source)
    with open_captures([str(path)]) as capture:
        should = list(capture)
    seen, wanted = columns_of(found), columns_of(should)
    seen.pop("offset"), wanted.pop("offset")  # where the payload is in the buffer
    assert seen == wanted
    assert _payloads(found) == _payloads(should)


def _payloads(batches: list[PacketBatch]) -> bytes:
    return b"".join(
        batch.buffer[at : at + size]
        for batch in batches
        for at, size in zip(batch.offset.tolist(), batch.length.tolist(), strict=True)
    )


def test_stages_are_timed(tmp_path: Path) -> None:
    path = small(tmp_path, packets=2_000, connections=20).path
    output = tmp_path / "lines"
    seconds, packets = measure(path.read_bytes(), "text", str(output))
    assert packets == small(tmp_path, packets=2_000, connections=20).part(packets=float("inf")).packets
    assert set(STAGES) < set(seconds)
    assert all(seconds[name] > 0 for name in STAGES)
    requests = small(tmp_path, packets=2_000, connections=20).part(packets=float("inf")).requests
    assert output.read_bytes().count(" → ".encode()) == requests
