"""Run `kafkasniff live` on a real interface as the user who runs the tests, usually root."""

from __future__ import annotations

import os
import subprocess
from typing import Any, Final

import pytest

__all__ = ["STAYS", "until_it_captures"]

STAYS: Final = ["--keep-root"] if os.geteuid() == 0 else []
"""Options of a `live` that makes files in the folders of tests, for any user that may read the interpreter."""


def until_it_captures(process: subprocess.Popen[Any]) -> None:
    """Read the output of `live`, including warnings, until it captures."""
    assert process.stderr is not None
    said = b""
    while b"listening on" not in said:
        line = process.stderr.readline()
        if not line:
            pytest.fail(said.decode())
        said += line
