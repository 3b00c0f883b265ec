"""`kafkasniff browse`: what it refuses. The screen itself is tested in tests/browse."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkasniff.browse.commands import Commands
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

CAPTURE = ROOT / "captures" / "java-errors.pcap"


def test_without_a_terminal() -> None:
    done = kafkasniff("browse", CAPTURE)
    assert done.code == 2
    assert "needs a terminal" in done.err
    assert len(done.err.splitlines()) == 1


def test_stdin() -> None:
    for arguments, words in [(("-",), "stdin is a terminal"), (("-", CAPTURE), "alone")]:
        done = kafkasniff("browse", *arguments, stdout_tty=True, stdin_tty=True)
        assert done.code == 2
        assert words in done.err


def test_a_named_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = kafkasniff("browse", tmp_path / "pipe", stdout_tty=True)
    assert done.code == 2
    assert "named pipe" in done.err


def test_a_filter_that_is_wrong() -> None:
    done = kafkasniff("browse", "--filter", "api ==", CAPTURE, stdout_tty=True)
    assert done.code == 2
    assert "--filter" in done.err


def test_options_are_passed_on_to_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Screen:
        return_code = None
        is_broken = False

        def __init__(self, *_: object, commands: Commands, **__: object) -> None:
            made.append(commands)

        def run(self) -> None:
            """Nothing is shown."""

        def exit(self) -> None:
            """Nothing is shown."""

    monkeypatch.setattr("kafkasniff.browse.screen.app.Explorer", Screen)
    options = ["--port", "9092", "--port", "9093", "--errors", "--connection", "1,2", "-Y", "latency_ms > 1",
               "--memory", "512M"]  # fmt: skip
    assert kafkasniff("browse", *options, CAPTURE, stdout_tty=True).code == 0
    assert made == [
        Commands(
            (str(CAPTURE),),
            ("--port=9092", "--port=9093", f"--memory={512 << 20}"),
            ("--filter=latency_ms > 1", "--errors", "--connection=1", "--connection=2"),
        )
    ]


def test_an_export_alone(tmp_path: Path) -> None:
    folder = tmp_path / "export"
    assert kafkasniff("export", "-q", CAPTURE, "-o", folder).code == 0
    done = kafkasniff("browse", folder, CAPTURE, stdout_tty=True)
    assert (done.code, "an export alone" in done.err) == (2, True)
