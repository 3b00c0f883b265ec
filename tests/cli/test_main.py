from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkasniff as package
from kafkasniff.cli import main as entrance
from kafkasniff.cli.environment import REPEAT_SECONDS, Exit, Interrupted, Interrupts
from kafkasniff.errors import (
    CaptureError,
    DefinitionError,
    MissingPartError,
    OutOfMemoryError,
    OutputError,
    UsageError,
)
from kafkasniff.native import kernel_note
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

PYTHON = [sys.executable, "-m", "kafkasniff"]
CAPTURE = ROOT / "captures" / "java-errors.pcap"
HEAVY = ("numpy", "pyarrow", "rich", "scapy", "orjson", "msgspec")


@pytest.mark.extended
@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["decode", "--help"], ["live", "--help"], ["export", "-h"]]
)
def test_help_is_light(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom kafkasniff.cli.main import main\nsys.argv[1:] = sys.argv[2:]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "x", *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    allowed = [] if arguments[0].startswith("-") else ["msgspec"]
    assert done.stderr.strip() in {"[]", repr(allowed)}
    assert "kafkasniff" in done.stdout


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        ("decode --keylog keys.log FILE", "cryptography", "tls"),
        ("browse FILE", "textual", "browse"),
        ("browse --serve FILE", "textual_serve", "browse"),
        ("report FILE -o out", "jinja2", "report"),
        ("report FILE -o out", "vl_convert", "report"),
        ("export FILE -o s3://bucket/tables", "obstore", "object-store"),
        ("export --format otlp -o http://localhost:4318 FILE", "opentelemetry.sdk.trace", "otlp"),
        ("live -i lo --otlp http://x", "opentelemetry.sdk.trace", "otlp"),
        ("export --engine spark FILE -o out", "pyspark", "spark"),
        ("export --engine spark --master sc://localhost FILE -o out", "grpc", "connect"),
    ],
)
def test_missing_extras(command: str, module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rule for all: exit code 5, and one line that names the extra, before anything is written.

    `test_without_tables.py` has the extra `tables`.
    """
    (tmp_path / "keys.log").touch()
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.startswith("kafkasniff.otlp")]:
        monkeypatch.delitem(sys.modules, name)
    if extra == "connect":
        # Other tests of this process may have started a session, which would be asked about its master first.
        pytest.importorskip("pyspark")
        monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setitem(sys.modules, module, None)
    done = kafkasniff(*(str(CAPTURE) if word == "FILE" else word for word in command.split()), stdout_tty=True)
    assert (done.code, done.out, done.err.count("\n")) == (Exit.UNAVAILABLE, b"", 1)
    assert done.err.endswith(f": pip install 'kafkasniff[{extra}]'\n")
    assert {file.name for file in tmp_path.iterdir()} == {"keys.log"}


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert kafkasniff("--version").code == Exit.OK
    assert capsys.readouterr().out == f"kafkasniff {package.__version__} ({kernel_note()})\n"
    assert kafkasniff("--help").code == Exit.OK
    shown = capsys.readouterr().out
    assert all(f"  {command} " in shown for command in entrance._COMMANDS)


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (UsageError("x"), 2),
        (OutputError("x"), 5),
        (MissingPartError("x"), 5),
        (CaptureError("x"), 3),
        (DefinitionError("x"), 70),
        (ZeroDivisionError("x"), 70),
        (KeyboardInterrupt(), 130),
        (Interrupted(signal.SIGINT), 130),
        (Interrupted(signal.SIGTERM), 143),
        (Interrupted(signal.SIGHUP), 129),
        (MemoryError(), 5),
        (OutOfMemoryError("x"), 5),
        (BrokenPipeError(), 0),
        (ModuleNotFoundError("x", name="pyarrow.parquet"), 5),
        (ModuleNotFoundError("x", name="other"), 70),
    ],
)
def test_every_exception_has_its_code_and_at_most_one_line(
    raised: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise raised

    monkeypatch.setattr(entrance.command_line, "invoke", fail)
    result = kafkasniff("decode", "x")
    assert result.code == code
    assert result.err.count("\n") <= 1
    assert "Traceback" not in result.err
    if isinstance(raised, ZeroDivisionError):
        assert result.err == "kafkasniff: internal error: ZeroDivisionError: x (-v shows where)\n"
    if code == 5 and isinstance(raised, ModuleNotFoundError):
        assert result.err == f"kafkasniff: {entrance.NEEDS_TABLES}\n"


def numpy_without_memory() -> None:
    import numpy as np

    np.empty(1 << 62, np.uint8)


def arrow_without_memory() -> None:
    import pyarrow as pa

    pa.allocate_buffer(1 << 62)


def kernel_without_memory() -> None:
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


def output_without_memory() -> None:
    try:
        kernel_without_memory()
    except OSError as error:
        raise OutputError("cannot write tables: Cannot allocate memory") from error


@pytest.mark.parametrize(
    "ask", [numpy_without_memory, arrow_without_memory, kernel_without_memory, output_without_memory]
)
@pytest.mark.parametrize("verbose", [False, True])
def test_out_of_memory_has_its_own_message(
    ask: Callable[[], None], verbose: bool, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkasniff.sinks.text.TextSink.write", lambda *_: ask())
    result = kafkasniff("decode", capture, *(["-v"] if verbose else []))
    assert result.code == Exit.UNAVAILABLE
    *before, last = result.err.splitlines()
    assert last == "kafkasniff: out of memory: give --memory a lower SIZE, use fewer --jobs, or provide more memory"
    assert any("Traceback" in line for line in before) == verbose
    assert verbose or not before


def test_an_internal_error_shows_its_traceback_on_request(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a bug\nof two lines \x1b[31m")

    monkeypatch.setattr("kafkasniff.sinks.text.TextSink.write", fail)
    result = kafkasniff("decode", capture)
    assert result.code == 70
    assert (
        result.err == "kafkasniff: internal error: ZeroDivisionError: a bug of two lines \\x1b[31m (-v shows where)\n"
    )
    result = kafkasniff("decode", "-v", capture)
    assert result.code == 70
    assert "Traceback" in result.err
    assert result.err.splitlines()[-1].startswith("kafkasniff: internal error: ZeroDivisionError")


# -- as a process ---------------------------------------------------------------------------------------------------


@pytest.mark.extended
def test_a_reader_that_closes_is_not_an_error(capture: Path) -> None:
    for form in ("text", "json"):
        decode = f'{sys.executable} -m kafkasniff decode --format {form} -vv "{capture}"'
        command = f'{decode} | head -c 10 >/dev/null; echo "${{PIPESTATUS[0]}}"'
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == "0\n"
        assert "Traceback" not in done.stderr
        assert "Broken" not in done.stderr


@pytest.mark.extended
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux only")
def test_a_full_disk_is_code_5(capture: Path) -> None:
    for arguments in (["decode", str(capture)], ["api"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [*PYTHON, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
            )
        assert done.returncode == 5
        assert done.stderr.count("\n") == 1
        assert "No space left" in done.stderr


@pytest.mark.extended
def test_a_closed_stdout_is_code_5(capture: Path) -> None:
    command = f'{sys.executable} -m kafkasniff decode "{capture}" >&-; echo $?'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "5\n"
    assert done.stderr.startswith("kafkasniff: cannot write to stdout")


@pytest.mark.extended
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_end_a_run_between_lines(signum: int, code: int, capture: Path) -> None:
    # Stdin stays open: the run waits for packets until a signal arrives.
    process = subprocess.Popen(
        [*PYTHON, "decode", "--format", "json", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        process.stdin.write(capture.read_bytes())
        process.stdin.flush()
        first = process.stdout.readline()
        assert first.startswith(b'{"type":"request"')
        process.send_signal(signum)
        rest, said = process.stdout.read(), process.stderr.read().decode()
        assert process.wait(timeout=30) == code
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
    assert rest.endswith(b"}\n")
    assert said.startswith("kafkasniff: interrupted: ")
    assert "Traceback" not in said


@pytest.mark.extended
def test_an_ignored_hangup_stays_ignored(capture: Path) -> None:
    """nohup(1) starts a program with SIGHUP ignored."""
    process = subprocess.Popen(
        ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *PYTHON, "decode", "-q", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        data = capture.read_bytes()
        process.stdin.write(data[: len(data) // 2])
        process.stdin.flush()
        first = process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        process.stdin.write(data[len(data) // 2 :])
        process.stdin.close()
        rest = process.stdout.read()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    whole = subprocess.run([*PYTHON, "decode", "-q", str(capture)], capture_output=True, check=True, timeout=60).stdout
    assert first + rest == whole


def test_a_signal_whose_exception_is_cleared_is_repeated() -> None:
    """As an extension module does that clears every exception."""

    def work() -> None:
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGTERM)
        time.sleep(60)

    with Interrupts().installed(), pytest.raises(Interrupted) as raised:
        work()
    assert raised.value.signum == signal.SIGTERM


@pytest.mark.extended
def test_a_signal_that_ended_a_command_is_not_repeated() -> None:
    """An exception that another one replaced was not accepted either, but then there is nothing left to end."""
    interrupts = Interrupts()
    taken: list[int] = []

    def command() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            raise OutputError("disk full")

    before = signal.signal(signal.SIGTERM, lambda signum, _: taken.append(signum))
    try:
        with contextlib.suppress(OutputError), interrupts.installed():
            command()
        time.sleep(10 * REPEAT_SECONDS)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not taken
