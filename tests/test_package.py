"""The package as users see it: public names, and imports that are light."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys

import pytest

import kafkasniff
from tests.conftest import ROOT, ran

HEAVY = ("numpy", "pyarrow", "duckdb", "rich", "scapy", "orjson", "pyspark", "pandas")
"""What must not be loaded before it is used: each costs more than all of kafkasniff's own start."""
NAMES = {
    *("Endpoint", "ErrorCode", "Exchange", "Message", "Problem", "SaslToken", "Summary"),
    *("Inspector", "decode_request", "decode_response", "read"),
}

LIGHT = """
import sys
def run(*arguments):
    from kafkasniff.cli.main import main
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
"""


def loaded_after(code: str) -> set[str]:
    """The modules that `code` loads in a fresh interpreter."""
    command = [sys.executable, "-c", f"{LIGHT}\n{code}\nprint('loaded:', *sys.modules)"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = ran(command, stdin=subprocess.DEVNULL, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rsplit("loaded:", 1)[1].split())


def test_public_names() -> None:
    names = kafkasniff.__all__
    assert len(names) == len(set(names))
    assert set(names) >= NAMES
    for name in names:
        assert getattr(kafkasniff, name) is not None
        assert name in dir(kafkasniff)
    assert all(inspect.getdoc(getattr(kafkasniff, name)) for name in NAMES)
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|(a|b|rc)\d+)?", kafkasniff.__version__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = kafkasniff.no_such_name  # type: ignore[attr-defined]


def test_imports_and_help_are_light() -> None:
    code = """
from kafkasniff import Exchange, Message, Problem
run("--version")
run("--help")
run("decode", "--help")
"""
    assert loaded_after(code) & set(HEAVY) == set()


def test_decoding_a_message_is_light() -> None:
    """One message from a log needs neither Arrow nor a terminal."""
    code = "import kafkasniff; print(kafkasniff.decode_request(bytes.fromhex('0012000000000005000474657374')).api)"
    assert loaded_after(code) & set(HEAVY) <= {"numpy", "orjson"}


def test_a_line_of_text_is_light() -> None:
    """Modules that a capture needs besides NumPy are loaded when the first packet needs them."""
    capture = str(ROOT / "captures" / "librdkafka-codecs.pcap")
    modules = loaded_after(f"run('decode', '--quiet', '--count', '1', {capture!r})")
    assert modules & {*HEAVY, "cryptography", "email", "importlib.metadata", "numpy.ma"} == {"numpy"}
