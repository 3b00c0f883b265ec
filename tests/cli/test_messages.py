"""Messages on stderr: one line each, without anything that acts on a terminal, even if stderr is a pipe."""

from __future__ import annotations

import ast
import io
import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.cli.environment import Exit
from kafkasniff.text.printable import printable
from tests.choice import one_in
from tests.cli.console import environment, kafkasniff
from tests.conftest import ROOT
from tests.test_hostile_strings import harmless

CAPTURE = ROOT / "captures" / "java-errors.pcap"
TEXT = st.text(st.characters() | st.characters(categories=["Cc", "Cf", "Cs", "Mn", "So", "Zl", "Zp", "Co"]))
NAMES = {
    "title": b"\x1b]0;owned\x07",
    "colour": b"\x1b[31mred",
    "line": b"a\nkafkasniff: forged",
    "back": b"a\r\b\b",
    "bidi": "\u202egnp".encode(),
    "emoji": "\U0001f600\u200d\U0001f525".encode(),
    "not UTF-8": b"\xff\xed\xa0\xbd",
}
WRITERS = {"environment.py", "output.py", "top.py"}
"""Modules that may write to stderr themselves: the one place of messages, and those that draw what is wiped away."""


@given(TEXT)
@example("\ud83d \udcff \x1b[31m \x9b31m a\nb \u202e \\x1b \\")
def test_every_message_is_one_harmless_line(text: str) -> None:
    world = environment()
    world.say(text)
    world.say(printable(text))
    assert isinstance(world.stderr, io.StringIO)
    said = world.stderr.getvalue()
    harmless(said)
    said.encode()
    first, second = said[:-1].split("\n")
    assert first.startswith("kafkasniff: ")
    # Escaped text is unchanged.
    assert second == f"kafkasniff: {printable(text)}"


@pytest.mark.parametrize("name", one_in(3, list(NAMES)))
def test_names_of_files(name: str, tmp_path: Path) -> None:
    evil = os.fsdecode(NAMES[name])
    path, folder, missing = (tmp_path / f"{one}{evil}" for one in ("capture", "folder", "missing"))
    shutil.copy(CAPTURE, path)
    (tmp_path / f"cut{evil}").write_bytes(CAPTURE.read_bytes()[:-7])
    for code, *arguments in (
        (Exit.OK, "export", path, "--output", folder),
        (Exit.BROKEN, "decode", tmp_path / f"cut{evil}"),
        (Exit.CAPTURE, "decode", missing),
        (Exit.UNAVAILABLE, "decode", path, "-o", tmp_path / "none" / evil),
        (Exit.CAPTURE, "stats", missing),
        (Exit.USAGE, "decode", path, "--filter", f"topic == {evil}"),
        (Exit.USAGE, "decode", path, "--api", evil),
        (Exit.USAGE, "api", evil),
        (Exit.USAGE, "decode", path, "--hosts", missing),
        (Exit.USAGE, evil),
    ):
        result = kafkasniff(*arguments)
        assert result.code == code, result.err
        harmless(result.err)
        assert result.err.encode()
        assert result.err.count("\n") == 1 or code in {Exit.OK, Exit.BROKEN}, result.err
        assert all(line.startswith("kafkasniff: ") for line in result.err.splitlines())


def test_no_other_module_writes_to_stderr() -> None:
    found = set()
    for path in (ROOT / "kafkasniff").rglob("*.py"):
        text = path.read_text()
        if not re.search(r"\bprint\(|click\.echo\(|stderr\.write", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            named = ast.unparse(node.func)
            to_stderr = named != "click.echo" or any(word.arg == "err" for word in node.keywords)
            writes = named.endswith(("stderr.write", "stderr.writelines")) or named in {"print", "click.echo"}
            if writes and to_stderr:
                found.add(path.name)
    assert found == WRITERS
