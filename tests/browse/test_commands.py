"""Commands that write what the list shows."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import kafkasniff
from kafkasniff.browse.commands import BROKEN, FINDINGS, Commands, run_command
from kafkasniff.cli.environment import Exit
from kafkasniff.errors import UsageError
from tests.browse.opened import never
from tests.cli.console import kafkasniff as command_line
from tests.conftest import ROOT

CAPTURE = str(ROOT / "captures" / "java-errors.pcap")


def test_words() -> None:
    commands = Commands(("-a.pcap", "b.pcap"), ("--port=9092",), ("--errors",))
    assert commands.decode(3, 7) == ["kafkasniff", "decode", "-v", "--port=9092", "--connection=3",
                                     "--correlation-id=7", "./-a.pcap", "b.pcap"]  # fmt: skip
    assert commands.write("out/", 'api == "Fetch"') == ["kafkasniff", "export", "--port=9092", "--errors",
        '--filter=api == "Fetch"', "-q", "--output=out/", "./-a.pcap", "b.pcap"]  # fmt: skip


def test_forms(tmp_path: Path) -> None:
    commands = Commands((CAPTURE,), (), ("--api=Fetch",))
    expression = "latency_ms > 1"
    for name in ("out.jsonl", "out.pcapng", "out/"):
        assert run_command(commands.write(f"{tmp_path}/{name}", expression), stopped=never).wrong is None
    wanted = command_line("decode", "-q", "--format", "json", "--api", "Fetch", "--filter", expression, CAPTURE)
    assert (tmp_path / "out.jsonl").read_bytes() == wanted.out
    found = [one for one in kafkasniff.read(tmp_path / "out.pcapng") if one.request.api == "Fetch"]
    assert len(found) >= len(wanted.lines) / 2 > 1
    tables = list((tmp_path / "out").glob("exchanges/**/*.parquet"))
    assert sum(pq.read_metadata(table).num_rows for table in tables) == len(wanted.lines) / 2


def test_names_that_are_refused(tmp_path: Path) -> None:
    commands = Commands((CAPTURE,))
    for path, words in [
        (CAPTURE, "exists"),
        (f"{tmp_path}/", "exists"),
        ("out.txt", "name it .jsonl"),
        ("", "name it .jsonl"),
    ]:
        with pytest.raises(UsageError, match=words):
            commands.write(path, "")
    with pytest.raises(UsageError, match="only captures"):
        Commands().write("out.jsonl", "")


def test_a_broken_capture_is_written_as_far_as_it_goes(tmp_path: Path) -> None:
    wrong = run_command(Commands((CAPTURE,)).write(f"{tmp_path}/none/out.jsonl", ""), stopped=never).wrong
    assert wrong is not None
    assert "none/out.jsonl" in wrong
    assert (FINDINGS, BROKEN) == (Exit.FINDINGS, Exit.BROKEN)
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(Path(CAPTURE).read_bytes()[:20_001])
    done = run_command(Commands((str(cut),)).write(f"{tmp_path}/out.jsonl", ""), stopped=never)
    assert (done.wrong, done.broken) == (None, True)
    wanted = command_line("decode", "-q", "--format", "json", cut)
    assert (tmp_path / "out.jsonl").read_bytes() == wanted.out


def test_it_stops(tmp_path: Path) -> None:
    asked = []

    def at_once() -> bool:
        asked.append(True)
        return True

    command = Commands((CAPTURE,) * 50).write(f"{tmp_path}/out.jsonl", "")
    assert run_command(command, stopped=at_once).wrong is not None
    assert asked
