"""`kafkasniff browse`: what it refuses. The screen itself is tested in tests/browse."""

from __future__ import annotations

import pytest

from kafkasniff.browse.commands import Commands
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

CAPTURE = ROOT / "captures" / "java-errors.pcap"


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
