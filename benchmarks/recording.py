"""Form A recorded by a Python that has confluent-kafka: the pinned environment that captures are recorded with."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

from captures.record.distribution import SetupError, python_with
from captures.record.programs import CONFLUENT

LIMIT_S: Final = 400
ROOT: Final = Path(__file__).resolve().parent.parent

_PROGRAM: Final = """
import json, sys
from pathlib import Path
from benchmarks.large_segments import record
path, megabytes, seed = sys.argv[1:]
print(json.dumps(record(Path(path), int(megabytes), int(seed))))
"""


class RecordingError(Exception):
    """Form A was not recorded; the message says why."""


def client_python() -> str:
    """The Python that has confluent-kafka; downloaded on first use. Raises RecordingError."""
    try:
        return python_with(*CONFLUENT)
    except SetupError as error:
        raise RecordingError(f"confluent-kafka is needed to record form A: {error}") from error


def record_with(python: str, path: Path, megabytes: int, seed: int = 1) -> list[int]:
    """Record this many megabytes of form A to `path`; the brokers' ports. Raises RecordingError."""
    command = [python, "-c", _PROGRAM, str(path.resolve()), str(megabytes), str(seed)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise RecordingError(f"form A was not recorded within {LIMIT_S} s") from error
    if done.returncode != 0:
        raise RecordingError(f"form A was not recorded: {done.stderr.strip()}")
    *said, ports = done.stdout.splitlines()
    for line in said:
        print(line)
    found: list[int] = json.loads(ports)
    return found
