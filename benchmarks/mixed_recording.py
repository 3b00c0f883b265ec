"""Form mixed: a real Kafka broker with clients of Java, librdkafka and franz-go, recorded from loopback.

Everything is bounded: the clients produce at a fixed rate for `SECONDS` at most, and the recording ends when the file
has the wanted size. The broker listens on loopback only. Needs the right to capture, Java, Maven and Go; the packages
of the broker and the clients are downloaded on first use (`captures.record`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

from benchmarks.recording import RecordingError
from captures.record.broker import RealBroker
from captures.record.distribution import DEFAULT_VERSION, SetupError, go_program
from captures.record.programs import CLIENTS, CONFLUENT, QUICK_GROUPS, java_program, python_program
from captures.record.sniffer import Sniffer, SniffOptions

SECONDS: Final = 240
"""Recording ends after this time, whatever the size by then."""
ENDING_S: Final = 40
"""Time for clients to flush, commit, leave their groups and end."""
CREATE_S: Final = 60
LOOK_S: Final = 0.25

TOPICS: Final = tuple(f"mixed-{number}" for number in range(6))
RATE: Final = 250
"""Small records per second of each of the three programs, which also produce as many larger ones, in batches."""


def record(path: Path, megabytes: int, *, seconds: int = SECONDS, rate: int = RATE) -> list[int]:
    """Record `megabytes` to `path`; returns the broker's ports.

    Ends after `seconds` even if the file is smaller. Raises RecordingError.
    """
    folder = Path(tempfile.mkdtemp(prefix="kafkasniff-mixed-"))
    try:
        return _record(path, folder, megabytes * 1_000_000, seconds, rate)
    except SetupError as error:
        raise RecordingError(f"form mixed was not recorded: {error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _record(path: Path, folder: Path, size: int, seconds: int, rate: int) -> list[int]:
    named = ",".join(TOPICS)
    java = java_program("MixedLoad", version=DEFAULT_VERSION, sources="java-load")()
    # Nobody reads a log of every request here.
    java = [word for word in java if not word.endswith("NetworkClient=debug")]
    load = [named, str(rate), str(seconds)]
    programs = {
        "java": [*java, "run", *load],
        "librdkafka": python_program(CONFLUENT, "librdkafka_load.py", *load)(),
        "franz-go": [go_program(CLIENTS / "go_load"), *load],
    }
    with RealBroker(folder / "broker", properties=QUICK_GROUPS) as broker:
        address = broker.bootstrap()
        # Before the recording, so that it holds only the load.
        _create([*java, "create", named, address])
        with Sniffer(path, [broker.port()], SniffOptions(nanoseconds=True)), ExitStack() as stack:
            running = {
                name: stack.enter_context(_Program(name, [*command, address], folder))
                for name, command in programs.items()
            }
            deadline = time.monotonic() + seconds
            while path.stat().st_size < size and time.monotonic() < deadline:
                for program in running.values():
                    program.check()
                time.sleep(LOOK_S)
            for program in running.values():
                program.end()
            for program in running.values():
                print(f"{path.name}: {program.wait()}", flush=True)
        return [broker.port()]


def _create(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CREATE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"topics were not created within {CREATE_S} s") from error
    if done.returncode != 0:
        raise SetupError(f"topics were not created: {done.stderr[-800:]}")


class _Program:
    """A client program, from its start to its end; killed if it does not end by itself."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self._name = name
        self._errors = folder / f"{name}.stderr"
        self._output = folder / f"{name}.stdout"
        with self._errors.open("wb") as errors, self._output.open("wb") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=errors)
        stdin = self._process.stdin
        assert stdin is not None
        self._stdin: IO[bytes] = stdin

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._stdin.close()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def check(self) -> None:
        """Raises SetupError if it failed."""
        if self._process.poll():
            self._fail()

    def end(self) -> None:
        """Ask it to end."""
        self._stdin.close()

    def wait(self) -> str:
        """The program's own report. Raises SetupError if it failed or does not end."""
        try:
            code = self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired as error:
            raise SetupError(f"the program of {self._name} did not end within {ENDING_S} s") from error
        if code:
            self._fail()
        said = json.loads(self._output.read_text(encoding="utf-8").splitlines()[-1])
        return f"{said['client']}: {said['records']:,} records"

    def _fail(self) -> None:
        raise SetupError(f"the program of {self._name} failed: {self._errors.read_text(errors='replace')[-2000:]}")
