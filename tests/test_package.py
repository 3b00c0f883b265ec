"""The package as users see it: public names, light imports, the module's command line."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kafkasniff

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("numpy", "pyarrow", "rich", "scapy", "orjson", "pyspark", "pandas")
"""What must not be loaded before it is used: each costs more than all of kafkasniff's own start."""
NOUNS = {"Endpoint", "ErrorCode", "Exchange", "Message", "Problem", "SaslToken", "Summary"}
VERBS = {"Inspector", "decode_request", "decode_response", "read"}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )


def heavy_after(code: str) -> set[str]:
    """The heavy packages loaded after `code` ran in a fresh interpreter."""
    done = python("-c", f"{code}\nimport sys; print('loaded:', *sys.modules)")
    assert done.returncode == 0, done.stderr
    modules = done.stdout.rsplit("loaded:", 1)[1].split()
    return {name.partition(".")[0] for name in modules} & set(HEAVY)


def test_public_names() -> None:
    names = kafkasniff.__all__
    assert len(names) == len(set(names))
    assert set(names) >= NOUNS | VERBS
    for name in names:
        assert getattr(kafkasniff, name) is not None
        assert name in dir(kafkasniff)


@pytest.mark.parametrize("name", sorted(VERBS | NOUNS))
def test_public_names_are_documented(name: str) -> None:
    assert inspect.getdoc(getattr(kafkasniff, name))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = kafkasniff.no_such_name  # type: ignore[attr-defined]


def test_import_is_light() -> None:
    assert heavy_after("import kafkasniff") == set()


def test_the_nouns_are_light() -> None:
    assert heavy_after("from kafkasniff import Exchange, Message, Problem") == set()


def test_decoding_a_message_is_light() -> None:
    """One message from a log needs neither Arrow nor a terminal."""
    code = "import kafkasniff; print(kafkasniff.decode_request(bytes.fromhex('0012000000000005000474657374')).api)"
    assert heavy_after(code) <= {"numpy", "orjson"}


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["decode", "--help"]])
def test_version_and_help_are_light(arguments: list[str]) -> None:
    code = f"""
import sys
from kafkasniff.cli.main import main
sys.argv[1:] = {arguments!r}
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
    assert heavy_after(code) == set()


def test_a_line_of_text_is_light() -> None:
    """Modules that a capture needs besides NumPy are loaded when the first packet needs them."""
    code = f"""
import sys
from kafkasniff.cli.main import main
sys.argv[1:] = ["decode", "--quiet", "--count", "1", {str(ROOT / "captures" / "librdkafka-codecs.pcap")!r}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("loaded:", *sys.modules)
"""
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.rsplit("loaded:", 1)[1].split())
    assert not modules & {*HEAVY, "cryptography", "email", "importlib.metadata", "numpy.ma"} - {"numpy"}


def test_version_is_printed() -> None:
    done = python("-m", "kafkasniff", "--version")
    assert done.returncode == 0
    assert kafkasniff.__version__ in done.stdout
    assert done.stderr == ""
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|(a|b|rc)\d+)?", kafkasniff.__version__)


def test_help_names_the_commands() -> None:
    done = python("-m", "kafkasniff", "--help")
    assert done.returncode == 0
    for command in ("decode", "live", "export", "api", "decode-bytes"):
        assert re.search(rf"^  {command} ", done.stdout, re.M), command


def test_scapy_is_imported_in_one_file_only() -> None:
    importers = set()
    for path in (ROOT / "kafkasniff").rglob("*.py"):
        source = path.read_text()
        if "scapy" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if any(name.partition(".")[0] == "scapy" for name in names):
                importers.add(path.relative_to(ROOT).as_posix())
    assert importers <= {"kafkasniff/capture/link/scapy_layers.py"}


def test_modules_have_descriptive_names() -> None:
    names = {path.stem for path in (ROOT / "kafkasniff").rglob("*.py")}
    assert names & {"utils", "util", "helpers", "helper", "common", "misc"} == set()


def test_the_package_is_typed() -> None:
    assert (Path(kafkasniff.__file__).parent / "py.typed").exists()
