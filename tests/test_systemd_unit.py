"""The units of docs/systemd: systemd accepts them, their commands are ours, and together they work as described."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from kafkasniff.cli.main import command_line
from tests.conftest import ROOT, missing, ran
from tests.tables.exports.exported import manifest, rows

FOLDER = ROOT / "docs" / "systemd"
CAPTURE = FOLDER / "kafkasniff-capture.service"
EXPORT = FOLDER / "kafkasniff-export.service"
UNITS = sorted(FOLDER.iterdir())
INSTALLED = "/opt/kafkasniff/bin/kafkasniff"
"""Where the units look for the program."""
EXPOSURE = 25
"""Tenths of systemd's score of how much a service may do: 0 nothing, 100 everything."""
PATIENCE = 60.0


def settings(unit: Path) -> dict[str, list[str]]:
    """Settings of a unit by key, with continued lines joined."""
    found: dict[str, list[str]] = {}
    for line in re.sub(r"\\\n\s*", " ", unit.read_text()).splitlines():
        if line and line[0] not in "#;[":
            key, equals, value = line.partition("=")
            assert equals, line
            found.setdefault(key, []).append(value)
    return found


def environment(unit: Path) -> dict[str, str]:
    return dict(one.split("=", 1) for value in settings(unit).get("Environment", []) for one in shlex.split(value))


def command(unit: Path, **changed: str) -> list[str]:
    """The command line of a unit as systemd expands it: `${NAME}` is one word, `$NAME` is split into words."""
    variables = {**environment(unit), **changed}
    words: list[str] = []
    (line,) = settings(unit)["ExecStart"]
    for word in shlex.split(line.strip()):
        if re.fullmatch(r"\$\w+", word):
            words += variables[word[1:]].split()
        else:
            assert "%" not in word.replace("%%", ""), f"{word}: systemd's own specifiers are not known here"
            filled = re.sub(r"\$\$|\$\{(\w+)\}", lambda found: variables[found[1]] if found[1] else "$", word)
            words.append(filled.replace("%%", "%"))
    return words


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The options of a kafkasniff command line, parsed by its own parser. Raises click.UsageError."""
    name, *rest = arguments
    of_name = command_line.get_command(click.Context(command_line), name)
    assert of_name is not None, name
    return of_name.make_context(name, rest, obj=None).params


def test_the_capture_is_a_valid_command() -> None:
    program, *arguments = command(CAPTURE)
    assert program == INSTALLED
    options = parsed(arguments)
    assert (options["interfaces"], " ".join(options["bpf"])) == (("any",), "tcp port 9092")
    assert options["quiet"]
    # The only right of root that is left opens the interface.
    rights = settings(CAPTURE)["CapabilityBoundingSet"]
    assert rights == settings(CAPTURE)["AmbientCapabilities"] == ["CAP_NET_RAW"]
    # Without a filter, too: not even an empty word remains.
    assert parsed(command(CAPTURE, FILTER="", INTERFACE="eth0")[1:])["bpf"] == ()
    from kafkasniff.cli.commands.live import _seconds
    from kafkasniff.cli.options.capture_options import take_writing

    writing = take_writing(options, _seconds)
    assert writing.name.startswith("kafka-")
    assert (writing.rotation.size, writing.rotation.seconds, writing.rotation.files) == (100 << 20, 600.0, 200)


@pytest.mark.extended
def test_systemd_accepts_the_units(require_tool: Callable[[str], str], tmp_path: Path) -> None:
    """Nothing is wrong with them, and the services have few rights."""
    copies = [tmp_path / unit.name for unit in UNITS]
    for unit, copy in zip(UNITS, copies, strict=True):
        copy.write_text(unit.read_text().replace(INSTALLED, sys.executable))

    def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = [require_tool("systemd-analyze"), *map(str, arguments)]
        return ran(words, timeout=PATIENCE)

    done = analyze("verify", *copies)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    version = re.match(r"systemd (\d+)", analyze("--version").stdout)
    if version is None or int(version[1]) < 250:
        missing("systemd-analyze is older than 250 and cannot judge a unit that is not loaded")
    for copy in copies:
        if copy.suffix == ".service":
            done = analyze("security", "--offline=yes", f"--threshold={EXPOSURE}", copy)
            assert done.returncode == 0, done.stdout


# -- the commands, with the rights that the units grant


def run_export(folder: Path) -> subprocess.CompletedProcess[str]:
    """The timer's command, in a folder of the test's."""
    shell, flags, script = command(EXPORT)
    program = f"{shlex.quote(sys.executable)} -m kafkasniff"
    words = [shell, flags, script.replace(INSTALLED, program)]
    return ran(words, cwd=folder, timeout=PATIENCE)


def captures(folder: Path) -> list[Path]:
    return sorted(folder.glob("kafka-*.pcapng*"))


@pytest.mark.extended
def test_captures_become_tables(tmp_path: Path) -> None:
    """Finished files are exported once; old exported ones are removed, the newest are kept."""
    for number, name in enumerate(("franz-go.pcap", "kafkajs.pcap", "sarama.pcap")):
        shutil.copy(ROOT / "captures" / name, tmp_path / f"kafka-20261121T0000{number:02}.pcapng")
    first = run_export(tmp_path)
    assert first.returncode == 0, first.stderr
    there = captures(tmp_path)
    done = {Path(one["name"]).name for one in manifest(tmp_path / "tables")["captures"]}
    assert done == {one.name for one in there[:-1]}
    again = run_export(tmp_path)
    assert (again.returncode, again.stderr) == (0, "kafkasniff: nothing to do: tables already has these captures\n")
    assert captures(tmp_path) == there
    for path in there[1:]:
        os.utime(path, (0, 0))
    assert run_export(tmp_path).returncode == 0
    assert captures(tmp_path) == [there[0], there[-1]]


@pytest.mark.extended
def test_exports_of_unfinished_and_broken_files(tmp_path: Path) -> None:
    """They remove nothing, and continue after a truncated file."""
    names = ("kafka-20261121T000000.pcapng", "kafka-20261121T001000.pcapng")
    assert run_export(tmp_path).returncode == 0
    assert list(tmp_path.iterdir()) == []
    # As left by a power failure: created, but never written.
    for name in names:
        (tmp_path / name).touch()
    assert run_export(tmp_path).returncode == 0
    assert not (tmp_path / "tables").exists()
    for name in names:
        (tmp_path / name).write_bytes(b"this is not a capture")
        os.utime(tmp_path / name, (0, 0))
    done = run_export(tmp_path)
    assert done.returncode not in (0, 4)
    assert "is not a capture" in done.stderr
    assert len(captures(tmp_path)) == 2
    whole = (ROOT / "captures" / "franz-go.pcap").read_bytes()
    for name, content in zip(names, (whole[:-7], whole[:24]), strict=True):
        (tmp_path / name).write_bytes(content)
    assert run_export(tmp_path).returncode == 0
    assert len(rows(tmp_path / "tables", "exchanges")) > 10
    assert captures(tmp_path)
