"""`kafkasniff live` on a real interface, started by whoever runs the tests: as root, most of the time."""

from __future__ import annotations

import os
import subprocess
from typing import Any, Final

import pytest

__all__ = ["STAYS", "until_it_listens"]

STAYS: Final = ["--keep-root"] if os.geteuid() == 0 else []
"""Options of a `live` that makes files in the folders of tests, whoever may read the Python that they run with."""


def until_it_listens(process: subprocess.Popen[Any]) -> None:
    """Read what `live` says, warnings too, until it captures."""
    assert process.stderr is not None
    said = b""
    while b"listening on" not in said:
        line = process.stderr.readline()
        if not line:
            pytest.fail(said.decode())
        said += line
