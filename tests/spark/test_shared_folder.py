"""The output folder as executors see it: refused within seconds where they do not share it, before anything is read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkasniff.errors import OutputError
from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.spark.shared_folder import share
from tests.conftest import ROOT
from tests.spark.processes import require_spark
from tests.tables.exports.exported import CAPTURES

CAPTURE = CAPTURES / "java-group-share.pcap"


def test_a_task_sees_the_folder_of_the_driver(tmp_path: Path) -> None:
    shared = share(open_own_folder(tmp_path / "out", make=True) / ".partial")
    assert shared.refusal() is None
    assert shared.open(7, open_own_folder(tmp_path)) == open_own_folder(tmp_path / "out" / ".partial") / "attempt-7"
    # Its attempt to write leaves nothing.
    assert len(list((tmp_path / "out" / ".partial").iterdir())) == 1


def test_a_missing_folder(tmp_path: Path) -> None:
    shared = share(open_own_folder(tmp_path / "out", make=True) / ".partial")
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match=r"out: it does not exist on \S+: the driver and all executors need"):
        shared.open(7, open_own_folder(tmp_path))
    assert not (tmp_path / "out").exists()


def test_a_folder_of_the_same_name_on_another_machine(tmp_path: Path) -> None:
    """Such as `/tmp/out`, which an earlier run has left there."""
    shared = share(open_own_folder(tmp_path / "out", make=True) / ".partial")
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    share(open_own_folder(tmp_path / "out", make=True) / ".partial")
    with pytest.raises(OutputError, match=r"out: it is another folder on "):
        shared.open(7, open_own_folder(tmp_path))


def test_a_folder_that_leads_elsewhere(tmp_path: Path) -> None:
    shared = share(open_own_folder(tmp_path / "out", make=True) / ".partial")
    (tmp_path / "out" / ".partial").rename(tmp_path / "elsewhere")
    (tmp_path / "out" / ".partial").write_text("")
    with pytest.raises(OutputError, match=r"out: it cannot be (written|used) \("):
        shared.open(7, open_own_folder(tmp_path))


@pytest.mark.extended
@pytest.mark.root
def test_executors_with_disks_of_their_own(
    require_root: Callable[[], None], require_tool: Callable[[str], str], tmp_path: Path
) -> None:
    """Workers in a mount namespace, where the folder's parent is an empty disk."""
    require_root()
    environment = require_spark()
    unshare = require_tool("unshare")
    work = tmp_path / "work"
    work.mkdir()
    worker = tmp_path / "python"
    worker.write_text(
        f'#!/bin/sh\nexec {unshare} -m sh -c \'mount -t tmpfs none {work} && exec {sys.executable} "$@"\' sh "$@"\n'
    )
    worker.chmod(0o755)
    command = (sys.executable, "-m", "kafkasniff", "export", "--engine", "spark", "--master", "local[2]")
    done = subprocess.run(
        [*command, str(CAPTURE), "-o", str(work / "out")],
        env={**environment, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(worker), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 5, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("kafkasniff:")]
    assert line.startswith(
        f"kafkasniff: {work / 'out'}: it does not exist on {os.uname().nodename}: the driver and all"
    )
    assert not work.exists() or not list(work.glob("out/.partial/*"))
