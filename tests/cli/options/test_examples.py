"""The examples in the help do what they say."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import click
import pytest

from kafkasniff.cli.main import command_line
from kafkasniff.cli.options.help_sections import EXAMPLES
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT

CAPTURES = ROOT / "captures"
# Others run theirs, and `live` needs an interface.
NOT_RUN = ("--engine spark", "live ", "browse ", "schemas ", "mcp ", "wireshark ")
LINES = [example.line for examples in EXAMPLES.values() for example in examples]


def test_each_command_has_three() -> None:
    names = command_line.list_commands(click.Context(command_line))
    assert {name: len(EXAMPLES[name]) for name in names} == dict.fromkeys(names, 3)
    assert EXAMPLES.keys() == set(names)
    assert all(line.split()[0] == name for name, examples in EXAMPLES.items() for _, line in examples)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples") / "tables"
    assert command("export", "-q", CAPTURES / "java-errors.pcap", "-o", folder).code == 0
    return folder


@pytest.mark.extended
@pytest.mark.parametrize("line", [one for one in LINES if not any(word in one for word in NOT_RUN)])
def test_it_runs(line: str, tables: Path, tmp_path: Path) -> None:
    line = re.split(" >>? ", line)[0]
    writes = " -o " in line
    query = tmp_path / "slowest.sql"
    query.write_text("SELECT api, latency_us FROM exchanges ORDER BY latency_us DESC LIMIT 3")
    stands_for = {
        "slowest.sql": query,
        "capture.pcap": CAPTURES / ("tls/tls-refused.pcap" if line.startswith("tls") else "java-errors.pcap"),
        "before.pcap": CAPTURES / "java-0.9.pcap",
        "after.pcap": CAPTURES / "java-errors.pcap",
        "tables": tmp_path / "tables" if line.startswith("export") else tables,
        "report.html": tmp_path / "report.html",
        "keys.log": os.devnull,
    }
    words = [stands_for.get(word, word) for word in shlex.split(line)]
    done = command(*words, stdin=b"00000007000000000000000000" if words[-1] == "-" else b"")
    # 1: findings, differences.
    assert done.code in (0, 1), done.err
    assert done.out or writes or "order" in line or "--slower-than" in line or "billing" in line
    assert "kafkasniff: -" not in done.err
