"""Sets of capabilities, and threads that keep some, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkasniff.capture.live import capabilities
from kafkasniff.capture.live.capabilities import CAP_DAC_OVERRIDE, CAP_SETGID, CAP_SETUID, effective, mask

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux only")


def said(program: str) -> str:
    """What a Python program with the module's names prints."""
    command = [sys.executable, "-c", f"from kafkasniff.capture.live.capabilities import *\n{program}"]
    # Without NumPy's threads, which would keep theirs.
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environ).stdout.strip()


def test_masks() -> None:
    assert mask() == 0
    assert mask(CAP_SETGID, CAP_SETUID, CAP_SETGID) == 0b1100_0000


def test_the_kernels_status_agrees() -> None:
    status = Path("/proc/thread-self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    assert effective() == int(line.split()[1], 16)


def test_none_are_left() -> None:
    found = said("drop_bounding_set(); drop_all_but(); print(effective(), open('/proc/self/status').read())")
    assert found.startswith("0 ")
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert f"{name}:\t{0:016x}" in found
    assert "NoNewPrivs:\t1" in found
    if os.geteuid() == 0 and effective():
        assert f"CapBnd:\t{0:016x}" in found


def test_only_those_that_it_has_are_kept() -> None:
    found = said("drop_all_but(mask(1)); drop_all_but(mask(1, 6)); print(effective())")
    assert int(found) == (effective() or 0) & mask(CAP_DAC_OVERRIDE)


def test_lowered_within_a_block_only() -> None:
    before = effective()
    assert before is not None
    with capabilities.lowered(0):
        assert effective() == 0
    assert effective() == before


def test_permitted_ones_become_effective() -> None:
    with capabilities.lowered(0):
        capabilities.make_effective(mask(CAP_SETUID, CAP_DAC_OVERRIDE))
        found = effective()
    assert found == (effective() or 0) & mask(CAP_SETUID, CAP_DAC_OVERRIDE)


def test_lowered_is_restored_after_an_error() -> None:
    before = effective()
    with pytest.raises(ValueError, match="inside"), capabilities.lowered(0):
        raise ValueError("inside")
    assert effective() == before


@pytest.mark.parametrize("listed", [True, False])
def test_other_threads_are_looked_at(listed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tmp_path / "task"
    monkeypatch.setattr(capabilities, "_TASKS", str(tasks))
    if listed:
        for thread, permitted in (("1", 0), ("2", mask(CAP_DAC_OVERRIDE))):
            (tasks / thread).mkdir(parents=True)
            (tasks / thread / "status").write_text(f"Name:\tx\nCapPrm:\t{permitted:016x}\n")
        # A thread that ends meanwhile.
        (tasks / "3").mkdir()
    assert capabilities._some_thread_has_more(0) is listed
    assert not capabilities._some_thread_has_more(mask(CAP_DAC_OVERRIDE))
