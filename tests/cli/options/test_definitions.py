"""`--definitions` and `api --check`: APIs that Apache Kafka does not have.

The option holds for the rest of the process, so each use has a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.kafka.schema.codes import DEFINITIONS, api_files, data_folder, vendors
from kafkasniff.spark.shipping import package_zip
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft.conversation import Conversation
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.write import write_pcap
from tests.invented import known


def alone(*arguments: object, code: int = 0) -> str:
    """What a process of its own writes."""
    found = subprocess.run(
        [sys.executable, "-m", "kafkasniff", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != DEFINITIONS},
    )
    assert found.returncode == code, found.stderr
    return found.stdout + found.stderr


@pytest.mark.parametrize("vendor", vendors())
def test_the_vendors_are_valid(vendor: str) -> None:
    found = kafkasniff("api", "--check", vendor, "--format", "json")
    assert (found.code, found.objects[0] if found.code else None) == (Exit.OK, None), found.text
    assert {one["api_key"] for one in json.loads(found.text)["apis"]} == {
        int(path.name.partition("_")[0]) for path in (data_folder() / "vendors" / vendor).iterdir()
    }


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node that registers at AutoMQ's controller, and reads a value."""
    folder = tmp_path_factory.mktemp("vendors")
    files = {path.name: path.read_text() for path in (data_folder() / "vendors" / "automq").iterdir()}
    talk = Conversation()
    talk.handshake()
    talk.exchange(request_bytes(18, 0, 1), response_bytes(18, 0, 1, api_keys=[{"max_version": 9}]))
    with known(folder, files):
        node: dict[str, Any] = {"node_id": 7, "walconfig": "0@s3://wal?secretKey=hidden"}
        talk.exchange(request_bytes(513, 0, 2, **node), response_bytes(513, 0, 2))
        keys = {"get_key_requests": [{"key": "config"}]}
        values = {"get_kvresponses": [{"value": b"private"}]}
        talk.exchange(request_bytes(509, 0, 3, **keys), response_bytes(509, 0, 3, **values))
    talk.close()
    return write_pcap(folder / "automq.pcap", talk.packets)


def test_a_vendor_is_decoded_only_if_named(capture: Path, tmp_path: Path) -> None:
    shown = [
        json.loads(line) for line in alone("decode", "-q", "--json", "--definitions", "automq", capture).splitlines()
    ]
    named = [one["api"] for one in shown if one["type"] == "response"]
    assert named == ["ApiVersions", "AutomqRegisterNode", "GetKVs"]
    assert shown[2]["body"]["walconfig"] == {"redacted": 27}
    assert shown[5]["body"]["get_kvresponses"][0]["value"] == "private"
    assert "AutomqRegisterNode" not in kafkasniff("decode", "-q", "--json", capture).text
    # Worker processes know it, too.
    alone("export", "-q", "--jobs", "2", "--definitions", "automq", "-o", tmp_path / "out", capture)
    assert "GetKVs" in kafkasniff("stats", "-q", tmp_path / "out").text


def test_mistakes_have_a_place(tmp_path: Path) -> None:
    kinds = {
        "500_empty.txt": "api 500 Empty   versions 0\n",
        "501_unknown.txt": "api 501 Unknown   versions 0\nlisteners broker\n"
        "request headers 1:0\n  kind  int8  enum nothing\nresponse headers 0:0\n  name  string  entity nobody\n",
        "note.txt": "",
    }
    for name, text in kinds.items():
        (tmp_path / name).write_text(text)
    found = kafkasniff("api", "--check", tmp_path)
    assert found.code == Exit.FINDINGS
    assert [line.removeprefix(f"{tmp_path}/").partition(": ")[::2] for line in found.lines] == [
        ("note.txt", "the name is not KEY_NAME.txt, such as 500_my_api.txt"),
        ("500_empty.txt:end", "a file holds one request and one response"),
        ("501_unknown.txt", "kind: no enumeration is called 'nothing' (enums.txt)"),
        ("501_unknown.txt", found.lines[3].partition(": ")[2]),
    ]
    assert "name: 'nobody' is not an entity" in found.lines[3]
    said = alone("decode", "--definitions", tmp_path, "captures/kafkajs.pcap", code=Exit.USAGE)
    assert "note.txt" in said
    assert "(and 3 more: kafkasniff api --check" in said
    assert "neither a folder nor a vendor" in alone("api", "--definitions", "nobody", code=Exit.USAGE)


def test_a_definition_replaces_that_of_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (data_folder() / "000_produce.txt").read_text().replace("# Append", "# Attach")
    (tmp_path / "000_produce.txt").write_text(text)
    assert "Attach record batches" in alone("api", "--definitions", tmp_path, "Produce")
    # Spark's executors get it as one of their own.
    monkeypatch.setenv(DEFINITIONS, os.pathsep.join((str(tmp_path), "redpanda")))
    api_files.cache_clear()
    try:
        assert 15_000 in api_files()
        with zipfile.ZipFile(BytesIO(package_zip())) as archive:
            assert archive.read("kafkasniff/dissectors/000_produce.txt").startswith(b"# Attach")
            assert "kafkasniff/dissectors/15000_describe_redpanda_roles.txt" in archive.namelist()
    finally:
        monkeypatch.undo()
        api_files.cache_clear()
