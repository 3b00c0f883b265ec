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
    "options",
    [
        "-v -x --two-pass --filter exists(record.key)",
        "--json --jobs 2 --errors",
    ],
)
def test_decode_is_the_same(options: str) -> None:
    arguments = ("decode", *options.split(), CAPTURE)
    done, other = without_arrow(*arguments), kafkasniff(*arguments, width=100)
    assert (done.returncode, done.stdout, done.stderr) == (other.code, other.text, other.err)


def test_write_matching(tmp_path: Path) -> None:
    done = without_arrow("decode", "-q", "--write-matching", tmp_path / "some.pcapng", "--errors", CAPTURE)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "some.pcapng").stat().st_size > 0


@pytest.mark.parametrize("arguments", ["api Produce", "completion bash", "live -D"])
def test_what_needs_no_capture(arguments: str) -> None:
    done = without_arrow(*arguments.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        *("check", "report -o -", "analyze latency"),
        "decode s3://bucket/capture.pcap",
    ],
)
def test_commands_name_what_they_need(arguments: str) -> None:
    done = without_arrow(*arguments.split(), *([] if "s3:" in arguments else [CAPTURE]))
    assert (done.returncode, done.stdout, done.stderr) == (5, "", f"kafkasniff: {NEEDS_TABLES}\n")


def test_completion_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_KAFKASNIFF_COMPLETE", "bash_complete")
    for words, found in (
        ("analyze la", "plain,latency plain,lag"),
        ("analyze latency --", None),
    ):
        monkeypatch.setenv("COMP_WORDS", f"kafkasniff {words}")
        monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
        done = without_arrow()
        assert done.stderr == ""
        assert done.stdout.splitlines() == ([] if found is None else found.split())


def test_diff_and_export_write_nothing(tmp_path: Path) -> None:
    for arguments in (["diff", CAPTURE, CAPTURE], ["export", CAPTURE, "-o", tmp_path / "tables"]):
        done = without_arrow(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (5, "", f"kafkasniff: {NEEDS_TABLES}\n")
    assert list(tmp_path.iterdir()) == []
