"""Screens: what commands print for shipped captures, as transcripts in `screens/`.

A transcript has commands (`$ kafkasniff stats …`, with `COLUMNS=80 ` before it for another width than 100), each
followed by its stdout (with `␛` for an escape), stderr (after `! `), and the exit code unless it is 0.
``python -m tests.cli.transcripts`` runs the commands of all transcripts and writes them again; a new command needs only
its line.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from pathlib import Path

from tests.cli.console import kafkasniff
from tests.conftest import ROOT

FOLDER = Path(__file__).with_name("screens")
COMMAND = re.compile(r"^\$ (?:COLUMNS=(\d+) )?kafkasniff (.*)$", re.M)


def transcripts() -> list[Path]:
    return sorted(FOLDER.glob("*.txt"))


def printed(width: int, command: str) -> str:
    """What a command prints, as a part of a transcript. The current folder has to be the checkout."""
    result = kafkasniff(*shlex.split(command), width=width)
    said = "".join(f"! {line}\n" for line in result.err.splitlines())
    code = f"exit code {result.code}\n" if result.code else ""
    return f"{result.text}{said}{code}".replace("\x1b", "␛")


def again(text: str) -> str:
    """A transcript whose commands are run again."""
    parts = []
    with contextlib.chdir(ROOT):
        for found in COMMAND.finditer(text):
            parts.append(f"{found[0]}\n{printed(int(found[1] or 100), found[2])}")
    return "\n".join(parts)


def main() -> int:
    for path in transcripts():
        before = path.read_text()
        now = again(before)
        if now != before:
            path.write_text(now)
            print(f"{path.relative_to(ROOT)}: {len(now.splitlines())} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
