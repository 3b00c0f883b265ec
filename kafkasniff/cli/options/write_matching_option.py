"""`--write-matching FILE`, and which files it can write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from kafkasniff.cli.options.stacked import Command
from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from kafkasniff.redact.payload import Payload

__all__ = ["check_writing", "write_matching_option"]

_COMPRESSED: Final = (".gz", ".zst", ".lz4")


def write_matching_option(command: Command) -> Command:
    """Add the option."""
    return click.option(
        "-w",
        "--write-matching",
        metavar="FILE",
        help="Also write FILE (pcapng, or pcap by its name) with the packets of all connections of messages shown. "
        "Secrets are removed, and so is payload with --no-payload. With -q, messages are printed only if -o is given.",
    )(command)


def check_writing(path: str, captures: Sequence[str], payload: Payload) -> None:
    """Raise UsageError if the option cannot be used with these captures or this payload."""
    from kafkasniff.library import can_be_read_twice

    once = next((name for name in captures if not can_be_read_twice(name)), None)
    if once is not None:
        raise UsageError(
            f"--write-matching reads captures twice, and {'stdin' if once == '-' else once} can be read only once"
        )
    if payload.form == "hashed":
        raise UsageError("--write-matching preserves all lengths, which hashes would change: use --no-payload to blank")
    if path == "-":
        raise UsageError("--write-matching needs the name of a file")
    if path.lower().endswith(_COMPRESSED):
        raise UsageError(f"--write-matching does not compress: name the file without {os.path.splitext(path)[1]}")
    for name in captures:
        try:
            same = os.path.samefile(name, path)
        except OSError:
            continue  # one of them does not exist
        if same:
            raise UsageError(f"{path} is a capture to be read; name another file")
