"""The Lua dissector in tshark: it reads what Kafka's classes wrote, and shows what `decode` shows."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkasniff.cli.environment import Exit
from tests.cli.console import kafkasniff
from tests.cli.real_live import conversation
from tests.conftest import ROOT, shipped_captures
from tests.craft.conversation import Conversation
from tests.craft.kafka_bytes import frame
from tests.craft.write import pcap_bytes
from tests.vectors.reader import vectors

pytestmark = pytest.mark.tshark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("wireshark")
    assert kafkasniff("wireshark", "-o", found).code == Exit.OK
    return found


@pytest.fixture
def tshark(folder: Path, require_tool: Callable[[str], str]) -> Callable[..., list[list[str]]]:
    """Runs tshark with the script on a capture; returns the values of fields of each frame of Kafka."""

    def run(capture: Path, *fields: str) -> list[list[str]]:
        script = f"lua_script:{folder / 'plugins' / 'kafkasniff.lua'}"
        words = [word for field in fields for word in ("-e", field)]
        done = subprocess.run(
            [require_tool("tshark"), "-r", capture, "-X", script, "-Y", "kafkasniff", "-T", "fields", *words],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "Lua" not in done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    return run


def test_it_shows_what_decode_shows(tshark: Callable[..., list[list[str]]]) -> None:
    capture = ROOT / "captures" / "java-errors.pcap"
    names = ("correlation_id", "client_id", "error_code", "request_in")
    rows = {row[0]: row[1:] for row in tshark(capture, "frame.number", *(f"kafkasniff.{name}" for name in names))}
    lines = [one for one in kafkasniff("decode", "-q", "--json", capture).objects if one["type"] != "problem"]
    requests = {line["exchange"]: line["last_packet"] for line in lines if line["type"] == "request"}
    assert {str(line["last_packet"]) for line in lines} == rows.keys()
    for line in lines:
        identity, client, errors, asked = rows[str(line["last_packet"])]
        assert str(line["correlation_id"]) in identity.split(",")
        if line["type"] == "request":
            assert line["client_id"] in client.split(",")
        else:
            assert str(requests[line["exchange"]]) in asked.split(",")
            assert {str(one["code"]) for one in line["errors"]} <= {*errors.split(",")}


@pytest.mark.extended
def test_every_version_that_kafka_writes(tshark: Callable[..., list[list[str]]], tmp_path: Path) -> None:
    talk = Conversation()
    talk.handshake()
    requests = [one for one in vectors() if one.kind == "request"]
    first = {(one.key, one.version): one for one in reversed(requests)}
    responses = [(first[one.key, one.version], one) for one in vectors() if one.kind == "response"]
    for number, (request, response) in enumerate([*((one, None) for one in requests), *responses]):
        identity = number.to_bytes(4)
        talk.send("client", frame(request.data[:4] + identity + request.data[8:]))
        if response is not None:
            talk.send("broker", frame(identity + response.data[4:]))
    path = tmp_path / "versions.pcap"
    path.write_bytes(pcap_bytes(talk.packets))
    rows = tshark(path, "kafkasniff.correlation_id", "_ws.expert.message")
    assert [row for row in rows if row[1]] == []
    assert sum(len(row[0].split(",")) for row in rows) == len(requests) + 2 * len(responses)


@pytest.mark.extended
@pytest.mark.parametrize("capture", shipped_captures()[::8], ids=lambda path: path.stem)
def test_captures_have_the_same_messages(capture: Path, tshark: Callable[..., list[list[str]]]) -> None:
    lines = kafkasniff("decode", "-q", "--json", "--no-records", capture).objects
    ours = Counter(str(one["correlation_id"]) for one in lines if one["type"] in ("request", "response"))
    rows = tshark(capture, "kafkasniff.correlation_id")
    assert Counter(one for row in rows for one in row[0].split(",") if one) == ours


@pytest.mark.extended
@pytest.mark.root
def test_wireshark_captures_only_kafka(
    folder: Path, tmp_path: Path, require_root: Callable[[], None], require_tool: Callable[[str], str]
) -> None:
    require_root()
    extcap = folder / "extcap" / "kafkasniff"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for parent in (".config", ".local/lib"):  # before Wireshark 4.2, and since
        (tmp_path / parent).mkdir(parents=True)
        (tmp_path / parent / "wireshark").symlink_to(folder)
    home = {**environment, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / ".config")}
    listed = subprocess.run([require_tool("tshark"), "-D"], capture_output=True, text=True, check=True, env=home).stdout
    assert "kafkasniff (Kafka (kafkasniff))" in listed

    def ask(*words: str) -> str:
        return subprocess.run([extcap, *words], capture_output=True, text=True, check=True, env=environment).stdout

    assert "interface {value=kafkasniff}" in ask("--extcap-interfaces", "--extcap-version=4.0")
    assert "{call=--interface}" in ask("--extcap-config", "--extcap-interface", "kafkasniff")
    assert "dlt {number=1}" in ask("--extcap-dlts", "--extcap-interface", "kafkasniff")
    pipe, copy = tmp_path / "pipe", tmp_path / "copy.pcapng"
    os.mkfifo(pipe)
    words = [str(extcap), "--capture", "--extcap-interface", "kafkasniff", "--interface", "lo", "--fifo", str(pipe)]
    with conversation(1, 2, 3) as port:
        process = subprocess.Popen([*words, f"--extcap-capture-filter=tcp port {port}"], env=environment)
        reader = pipe.open("rb", buffering=0)
        data = reader.read(1 << 16)  # it captures
    with process, reader:
        while data.count(b"orders") < 6:
            data += reader.read(1 << 16)
        process.terminate()
        copy.write_bytes(data + reader.read())
        assert process.wait() == Exit.OK
    messages = kafkasniff("decode", "-q", "--json", copy).objects
    assert [one["correlation_id"] for one in messages if one["type"] != "problem"] == [1, 1, 2, 2, 3, 3]
