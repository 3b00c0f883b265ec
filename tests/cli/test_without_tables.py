"""Without the extra `tables`: what works without pyarrow, and what names the package to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkasniff.cli.main import NEEDS_TABLES
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

pytestmark = pytest.mark.extended

CAPTURE = ROOT / "captures" / "librdkafka-codecs.pcap"
WITHOUT_ARROW = """
import sys

class NotInstalled:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError("No module named 'pyarrow'", name=name)

sys.meta_path.insert(0, NotInstalled)
from kafkasniff.cli.main import main
main()
"""


def without_arrow(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_ARROW, *map(str, arguments)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        "decode -v -x --two-pass --filter exists(record.key) CAPTURE",
        "decode --json --jobs 2 --errors CAPTURE",
        "decode -q --write-matching some.pcapng --errors CAPTURE",
        *("api Produce", "completion bash", "live -D"),
    ],
)
def test_what_works(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = command.replace("CAPTURE", str(CAPTURE)).split()
    done, other = without_arrow(*words), kafkasniff(*words, width=100)
    assert (done.returncode, done.stdout, done.stderr) == (other.code, other.text, other.err)
    assert done.stdout or (tmp_path / "some.pcapng").stat().st_size > 0


@pytest.mark.parametrize(
    "command",
    [
        *("check CAPTURE", "report -o - CAPTURE", "analyze latency CAPTURE", "diff CAPTURE CAPTURE"),
        *("export CAPTURE -o tables", "decode s3://bucket/capture.pcap"),
    ],
)
def test_what_names_the_package(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = without_arrow(*command.replace("CAPTURE", str(CAPTURE)).split())
    assert (done.returncode, done.stdout, done.stderr) == (5, "", f"kafkasniff: {NEEDS_TABLES}\n")
    assert list(tmp_path.iterdir()) == []


def test_completion_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_KAFKASNIFF_COMPLETE", "bash_complete")
    for words, found in (("analyze la", "plain,latency plain,lag"), ("analyze latency --", None)):
        monkeypatch.setenv("COMP_WORDS", f"kafkasniff {words}")
        monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
        done = without_arrow()
        assert done.stderr == ""
        assert done.stdout.splitlines() == ([] if found is None else found.split())
