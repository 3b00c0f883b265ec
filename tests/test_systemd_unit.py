"""The units of docs/systemd: systemd accepts them, their commands are ours, and together they work as described."""

from __future__ import annotations

import calendar
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from kafkasniff.cli.main import command_line
from tests.capture.network import on_own_loopback
from tests.conftest import ROOT, missing
from tests.craft import kafka_bytes as kafka
from tests.tables.exports.exported import manifest, rows

FOLDER = ROOT / "docs" / "systemd"
CAPTURE = FOLDER / "kafkasniff-capture.service"
EXPORT = FOLDER / "kafkasniff-export.service"
TIMER = FOLDER / "kafkasniff-export.timer"
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
    """The variables that a unit sets."""
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
    # Without a filter, too: not even an empty word remains.
    assert parsed(command(CAPTURE, FILTER="", INTERFACE="eth0")[1:])["bpf"] == ()
    from kafkasniff.cli.commands.live import _seconds
    from kafkasniff.cli.options.capture_options import take_writing

    writing = take_writing(options, _seconds)
    assert writing is not None
    assert writing.name.startswith("kafka-")
    assert (writing.rotation.size, writing.rotation.seconds, writing.rotation.files) == (100 << 20, 600.0, 200)


def test_the_export_is_a_valid_command() -> None:
    shell, flags, script = command(EXPORT)
    assert (shell, flags) == ("/bin/sh", "-euc")
    found = re.findall(rf'{INSTALLED} (.*?) "\$@"', script)
    assert len(found) == script.count(INSTALLED) == 1
    options = parsed([*shlex.split(found[0]), "kafka-1.pcapng", "kafka-2.pcapng"])
    assert options["output"] == "tables"
    assert options["captures"] == ("kafka-1.pcapng", "kafka-2.pcapng")


def test_an_unknown_option_is_noticed() -> None:
    with pytest.raises(click.UsageError, match=r"(?i)no such option"):
        parsed([*command(CAPTURE)[1:], "--rotate-nothing"])


def test_both_services_share_a_user_and_a_folder() -> None:
    capture, export = settings(CAPTURE), settings(EXPORT)
    for key in ("User", "DynamicUser", "StateDirectory", "StateDirectoryMode", "WorkingDirectory", "UMask"):
        assert capture[key] == export[key], key
    assert settings(TIMER).get("Unit", [EXPORT.name]) == [EXPORT.name]
    assert TIMER.stem == EXPORT.stem


@pytest.fixture
def installed(tmp_path: Path) -> list[Path]:
    """The units, with this environment's program instead of the installed one."""
    copies = []
    for unit in UNITS:
        copies.append(tmp_path / unit.name)
        copies[-1].write_text(unit.read_text().replace(INSTALLED, sys.executable))
    return copies


def systemd_analyze(require_tool: Callable[[str], str], *arguments: object) -> subprocess.CompletedProcess[str]:
    words = [require_tool("systemd-analyze"), *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_systemd_finds_nothing_wrong(installed: list[Path], require_tool: Callable[[str], str]) -> None:
    done = systemd_analyze(require_tool, "verify", *installed)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    broken = installed[0]
    broken.write_text(broken.read_text().replace("[Service]", "[Service]\nProtectEverything=yes"))
    assert "ProtectEverything" in systemd_analyze(require_tool, "verify", broken).stderr


@pytest.mark.parametrize("unit", [CAPTURE, EXPORT], ids=lambda unit: unit.stem)
def test_services_have_few_rights(unit: Path, installed: list[Path], require_tool: Callable[[str], str]) -> None:
    version = re.match(r"systemd (\d+)", systemd_analyze(require_tool, "--version").stdout)
    if version is None or int(version[1]) < 250:
        missing("systemd-analyze is older than 250 and cannot judge a unit that is not loaded")
    copy = next(one for one in installed if one.name == unit.name)
    done = systemd_analyze(require_tool, "security", "--offline=yes", f"--threshold={EXPOSURE}", copy)
    assert done.returncode == 0, done.stdout


# -- the commands, with the rights that the units grant


def run_export(folder: Path) -> subprocess.CompletedProcess[str]:
    """The timer's command, in a folder of the test's."""
    shell, flags, script = command(EXPORT)
    program = f"{shlex.quote(sys.executable)} -m kafkasniff"
    words = [shell, flags, script.replace(INSTALLED, program)]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)


def captures(folder: Path) -> list[Path]:
    return sorted(folder.glob("kafka-*.pcapng*"))


class Conversation:
    """A client and a broker on loopback."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
            self.client = socket.create_connection(("127.0.0.1", self.port))
            self.broker = server.accept()[0]
        self.count = 0

    def exchange_once(self) -> None:
        """One more exchange."""
        batch = kafka.record_batch([kafka.record(0, b"k", b"v")])
        self.client.sendall(kafka.produce_request(self.count, "orders", batch, version=9))
        self.broker.recv(4096)
        self.broker.sendall(kafka.produce_response(self.count, "orders", 7, version=9))
        self.client.recv(4096)
        self.count += 1

    def close(self) -> None:
        self.client.close()
        self.broker.close()


@pytest.mark.root
def test_captures_become_tables(
    require_root: Callable[[], None], require_tool: Callable[[str], str], tmp_path: Path
) -> None:
    """Files rotate. Finished ones are exported once; old exported ones are removed, the newest are kept."""
    require_root()
    capture_and_export(require_tool("setpriv"), tmp_path)


@on_own_loopback
def capture_and_export(setpriv: str, folder: Path) -> None:
    talk = Conversation()
    words = command(CAPTURE, INTERFACE="lo", FILTER=f"tcp port {talk.port}")
    words[words.index("10m")] = "1s"
    # Exactly the rights of the unit: of root's rights, only the one in the set is left.
    rights = settings(CAPTURE)["CapabilityBoundingSet"]
    assert rights == settings(CAPTURE)["AmbientCapabilities"] == ["CAP_NET_RAW"]
    limits = ["--no-new-privs", "--bounding-set", "-all,+net_raw"]
    if os.geteuid() != 0:
        missing("giving up rights needs root")
    process = subprocess.Popen(
        [setpriv, *limits, sys.executable, "-m", "kafkasniff", *words[1:]],
        cwd=folder,
        env={**os.environ, **environment(CAPTURE)},
        stderr=subprocess.PIPE,
        umask=0o077,
    )
    end = time.monotonic() + PATIENCE
    try:
        while len(captures(folder)) < 3:
            assert process.poll() is None
            assert time.monotonic() < end, "files do not rotate"
            talk.exchange_once()
            time.sleep(0.1)
        status = Path(f"/proc/{process.pid}/status").read_text()
        # Open interfaces need no right.
        assert "CapEff:\t0000000000000000" in status
        stamps = [re.fullmatch(r"kafka-(\d{8}T\d{6})\.pcapng000", path.name) for path in captures(folder)]
        begun = [calendar.timegm(time.strptime(found[1], "%Y%m%dT%H%M%S")) for found in stamps if found]
        assert len(begun) == len(stamps)
        assert abs(begun[-1] - time.time()) < PATIENCE, "names are in UTC"

        first = run_export(folder)
        assert first.returncode == 0, first.stderr
        assert "exchanges, " in first.stderr
        done = manifest(folder / "tables")
        assert process.poll() is None
        assert len(done["captures"]) >= 2
        assert captures(folder)[-1].name not in {one["name"] for one in done["captures"]}
    finally:
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=PATIENCE)[1]
        process.kill()
        talk.close()
    # The unit has its own user. Here it is root, without the right to change users.
    assert (process.returncode, said.count(b"\n")) == (0, 1)
    assert said.startswith(b"kafkasniff: warning: stays root (it lacks CAP_SETUID")

    # As after a restart: a new file shows that the previous one is finished.
    shutil.copy(captures(folder)[-1], folder / "kafka-29991231T235959.pcapng")
    assert run_export(folder).returncode == 0
    exchanges = rows(folder / "tables", "exchanges")
    assert {row["status"] for row in exchanges} == {"answered"}
    numbers = sorted(row["correlation_id"] for row in exchanges)
    # Earlier messages are missing, and none is there twice.
    assert numbers == list(range(numbers[0], talk.count))
    assert len({row["connection_id"] for row in exchanges}) == 1

    there = captures(folder)
    again = run_export(folder)
    assert (again.returncode, again.stderr) == (0, "kafkasniff: nothing to do: tables already has these captures\n")
    assert captures(folder) == there
    for path in there[1:]:
        os.utime(path, (0, 0))
    assert run_export(folder).returncode == 0
    assert captures(folder) == [there[0], there[-1]]


def test_an_export_where_nothing_is_finished(tmp_path: Path) -> None:
    assert run_export(tmp_path).returncode == 0
    assert list(tmp_path.iterdir()) == []
    # As left by a power failure: created, but never written.
    for name in ("kafka-20261121T000000.pcapng", "kafka-20261121T001000.pcapng"):
        (tmp_path / name).touch()
    assert run_export(tmp_path).returncode == 0
    assert not (tmp_path / "tables").exists()


def test_an_export_continues_after_a_truncated_file(tmp_path: Path) -> None:
    whole = (ROOT / "captures" / "franz-go.pcap").read_bytes()
    (tmp_path / "kafka-20261121T000000.pcapng").write_bytes(whole[:-7])
    (tmp_path / "kafka-20261121T001000.pcapng").write_bytes(whole[:24])
    assert run_export(tmp_path).returncode == 0
    assert len(rows(tmp_path / "tables", "exchanges")) > 10
    assert captures(tmp_path)


def test_a_failed_export_removes_nothing(tmp_path: Path) -> None:
    for name in ("kafka-20261121T000000.pcapng", "kafka-20261121T001000.pcapng"):
        (tmp_path / name).write_bytes(b"this is not a capture")
        os.utime(tmp_path / name, (0, 0))
    done = run_export(tmp_path)
    assert done.returncode not in (0, 4)
    assert "is not a capture" in done.stderr
    assert len(captures(tmp_path)) == 2
