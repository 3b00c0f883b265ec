from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafkasniff as package
from kafkasniff.cli import main as entrance
from kafkasniff.cli.environment import Exit, Interrupted
from kafkasniff.errors import CaptureError, DefinitionError, MissingPartError, OutOfMemoryError, OutputError, UsageError
from kafkasniff.native import kernel_note
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

PYTHON = [sys.executable, "-m", "kafkasniff"]
CAPTURE = ROOT / "captures" / "java-errors.pcap"
LIGHT = """
import os, sys
from kafkasniff.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code
found = {*sys.modules} & {"numpy", "pyarrow", "rich", "scapy", "orjson", "msgspec", "pyspark", "pandas", "cryptography"}
print(*sorted(found), file=sys.stderr)
"""


@pytest.mark.extended
@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        *(("--help", ""), ("--version", ""), ("decode --help", "msgspec"), ("live -h", "msgspec")),
        *((f"complete {line}", "msgspec") for line in ("deco", "decode --api P", "diff --only l", "export captu")),
    ],
)
def test_help_and_completion_are_light(line: str, allowed: str) -> None:
    """Somebody waits: only modules that an answer needs are imported."""
    verb, *words = line.split()
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    if verb == "complete":
        environ |= {"_KAFKASNIFF_COMPLETE": "bash_complete", "COMP_WORDS": f"kafkasniff {' '.join(words)}",
                    "COMP_CWORD": str(len(words))}  # fmt: skip
    arguments = [sys.executable, "-c", LIGHT, *([] if verb == "complete" else [verb, *words])]
    done = subprocess.run(arguments, env=environ, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout
    assert done.stderr.split() in ([], [allowed])


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
    if code == 5 and isinstance(raised, ModuleNotFoundError):
        assert result.err == f"kafkasniff: {entrance.NEEDS_TABLES}\n"


def no_memory() -> None:
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


def no_memory_for_output() -> None:
    try:
        no_memory()
    except OSError as error:
        raise OutputError("cannot write tables: Cannot allocate memory") from error


def no_memory_for_arrow() -> None:
    pa.allocate_buffer(1 << 62)


def bug() -> None:
    raise ZeroDivisionError("a bug\nof two lines \x1b[31m")


@pytest.mark.parametrize("fails", [no_memory, no_memory_for_output, no_memory_for_arrow, bug])
def test_failures_show_their_traceback_on_request(
    fails: Callable[[], None], capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = Exit.UNAVAILABLE, "out of memory: give --memory a lower SIZE, use fewer --jobs, or provide more memory"
    if fails is bug:
        code, said = Exit.INTERNAL, "internal error: ZeroDivisionError: a bug of two lines \\x1b[31m"
    monkeypatch.setattr("kafkasniff.sinks.text.TextSink.write", lambda *_: fails())
    result = kafkasniff("decode", capture)
    assert (result.code, result.err) == (code, f"kafkasniff: {said}{' (-v shows where)' * (fails is bug)}\n")
    result = kafkasniff("decode", "-v", capture)
    assert (result.code, result.err.splitlines()[-1]) == (code, f"kafkasniff: {said}")
    assert "Traceback" in result.err


@pytest.mark.extended
@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("decode -qvv CAPTURE | head -c 10", 0, ""),
        ("decode -q --format json CAPTURE | head -c 10", 0, ""),
        ("decode CAPTURE > /dev/full", 5, "No space left on device"),
        ("api > /dev/full", 5, "No space left on device"),
        ("decode CAPTURE >&-", 5, "cannot write to stdout"),
    ],
)
def test_outputs_that_end(line: str, code: int, said: str, capture: Path) -> None:
    script = f'"{sys.executable}" -m kafkasniff {line.replace("CAPTURE", str(capture))}; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", script], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, said in done.stderr, done.stderr.count("\n")) == (code, True, bool(said))


@pytest.mark.extended
@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), ("ignored", 0)]
)
def test_signals_end_a_run_between_lines(signum: int | str, code: int, capture: Path) -> None:
    """nohup(1) starts a program with SIGHUP ignored. Stdin stays open: the run waits for packets."""
    nohup = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"] if signum == "ignored" else []
    command = [*nohup, *PYTHON, "decode", "--format", "json", "-"]
    pipe, data = subprocess.PIPE, capture.read_bytes()
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        process.stdin.write(data[: len(data) // 2])
        process.stdin.flush()
        first = process.stdout.readline()
        process.send_signal(signal.SIGHUP if isinstance(signum, str) else signum)
        if nohup:
            process.stdin.write(data[len(data) // 2 :])
            process.stdin.close()
        rest, said = process.stdout.read(), process.stderr.read()
    assert process.returncode == code
    assert rest.endswith(b"}\n")
    assert b"Traceback" not in said
    if nohup:
        assert first + rest == kafkasniff("decode", "-q", "--format", "json", "-", stdin=data).out
    else:
        assert said.startswith(b"kafkasniff: interrupted: ")
