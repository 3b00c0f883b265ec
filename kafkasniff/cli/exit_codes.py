"""Meanings of the exit codes."""

from __future__ import annotations

from typing import Final

from kafkasniff.cli.environment import Exit

__all__ = ["EXIT_CODES", "EXIT_ORDER"]

EXIT_CODES: Final = (
    ("0", "Everything was read. Problems in streams do not change this, nor does a reader that closes the pipe."),
    (
        "1",
        "Findings or differences, from commands that look for them. Or nothing to work on: no Kafka message, or none "
        "that the filters, --port or the names given select; one line on stderr (even with -q) says what there is. If "
        "a capture is broken, this gives 4.",
    ),
    ("2", "Usage error."),
    ("3", "A capture or an interface cannot be opened."),
    (
        "4",
        "A capture file is structurally broken or truncated, or a captured interface went down and did not come back; "
        "the readable part was processed.",
    ),
    ("5", "The output cannot be written, or the native kernel, privileges, Java, an extra or memory are missing."),
    ("70", "Internal error: one line, with -v a traceback."),
    ("129, 130, 143", "Interrupted by SIGHUP, SIGINT or SIGTERM. A live capture that is stopped this way: 0."),
)
"""`environment.Exit`, described for people."""
EXIT_ORDER: Final = f"If several apply, the first in the order {', '.join(str(int(code)) for code in Exit if code)}."
