"""Interfaces of other machines: an `ssh` of ours runs what it is given here, a `tcpdump` of ours sends a file."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkasniff.capture.live.live import open_live
from kafkasniff.errors import CaptureError, UsageError
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

CAPTURE = ROOT / "captures" / "java-errors.pcap"
NAME = "ssh://me@broker-1:2222/eth0"
Fake = Callable[..., Path]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Makes the programs; the arguments of each are in the file that is returned. `id` makes the other user root."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    log = tmp_path / "log"

    def make(tcpdump: str = f"cat {CAPTURE}", ssh: str = "") -> Path:
        run = 'for last; do :; done; SSH_CONNECTION="10.0.0.7 50022 10.0.0.9 22" exec sh -c "$last"'
        for name, script in {"tcpdump": tcpdump, "ssh": ssh or run, "id": "echo 0"}.items():
            path = tmp_path / name
            path.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@" >> {log}\n{script}\n')
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return log

    return make


def test_packets_are_those_of_the_file(fake: Fake) -> None:
    log = fake()
    with open_live(NAME, bpf="tcp port 9092 or port 'x") as source:
        rows = sum(len(batch) for batch in source)
        assert (source.captures, source.broken) == ((NAME,), True)
        assert source.counts()[0][0] >= rows > 100
    words = log.read_text().splitlines()
    tcpdump = words[words.index("tcpdump") + 1 :]
    assert tcpdump[:2] == ["-i", "eth0"]
    assert tcpdump[-1] == "not (host 10.0.0.7 and tcp port 50022) and (tcp port 9092 or port 'x)"
    ssh = words[1 : words.index("--")]
    assert ssh[-4:] == ["-p", "2222", "-l", "me"]
    assert "BatchMode=yes" in ssh


def test_the_command_and_its_end(fake: Fake) -> None:
    fake(f"cat {CAPTURE}; echo tcpdump: eth0: went away >&2")
    done = kafkasniff("live", "-i", NAME, "--format", "json")
    wanted = kafkasniff("decode", "--format", "json", CAPTURE)
    ids = [(one["type"], one["correlation_id"]) for one in map(json.loads, wanted.lines) if "correlation_id" in one]
    assert [
        (one["type"], one["correlation_id"]) for one in map(json.loads, done.lines) if "correlation_id" in one
    ] == ids
    assert done.code == 4
    assert f"{NAME}: the capture ended by itself: tcpdump: eth0: went away" in done.err


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo Host key verification failed. >&2; exit 255", "Host key verification failed. (connect once by hand"),
        ("echo 'me@h: Permission denied (publickey).' >&2; exit 255", "(ssh must log in without a password"),
        ("echo 'sudo: a password is required' >&2; exit 1", "(tcpdump needs root there"),
        ("echo 'sh: 3: exec: tcpdump: not found' >&2; exit 127", "(install tcpdump there)"),
        ("echo tcpdump: eth0: No such device exists >&2; exit 1", "tcpdump: eth0: No such device exists"),
        ("printf 'Welcome to broker-1, have a nice day\\n'", "prints more than packets"),
        ("exit 3", "broker-1"),
    ],
)
def test_what_goes_wrong_is_one_line(script: str, message: str, fake: Fake) -> None:
    fake(ssh=script)
    with pytest.raises(CaptureError) as raised:
        open_live(NAME)
    assert message in str(raised.value)
    assert str(raised.value).startswith(NAME)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["ssh://", "ssh:///eth0", "ssh://h", "ssh://-o/eth0", "ssh://h/-w", "ssh://h:x/e", "ssh://a:b@h/e"]
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(UsageError, match="ssh://"):
        open_live(name)
