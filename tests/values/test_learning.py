"""`schemas learn`: schemas from the HTTP traffic of a registry, and what is skipped of it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.values import learning
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.craft import disturb
from tests.craft.conversation import Conversation
from tests.craft.packet import Packet
from tests.craft.write import write_pcap

BASE = "/apis/ccompat/v7"
SCHEMA = {"schema": '"string"'}


def request(method: str, path: str, body: Any = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    return f"{method} {BASE}{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def answer(body: Any, status: int = 200, coding: str = "") -> bytes:
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
    if "gzip" in coding:
        content = gzip.compress(content)
        head += "content-encoding: gzip\r\n"
    if "chunked" in coding:
        parts = [content[at : at + 7] for at in range(0, len(content), 7)]
        chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(part), part) for part in parts)
        return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\n\r\n"
    length = "" if "close" in coding else f"Content-Length: {len(content)}\r\n"
    return f"{head}{length}\r\n".encode() + content


def talk() -> Conversation:
    """A client of a registry: every form of a request and of an answer."""
    made = Conversation(broker=("10.0.0.9", 8081))
    made.handshake()
    for asked, found in (
        (request("GET", "/schemas/ids/7"), answer(SCHEMA)),
        (request("GET", "/schemas/ids/8?subject=a"), answer(SCHEMA, coding="gzip")),
        (request("GET", "/subjects/a%2Fb/versions/latest"), answer({**SCHEMA, "id": 9, "version": 3, "guid": "g-1"})),
        (request("POST", "/subjects/c/versions", {"schema": "{}", "schemaType": "JSON"}), answer({"id": 10})),
        (request("POST", "/subjects/d", SCHEMA), answer({**SCHEMA, "id": 11, "version": 1}, coding="chunked")),
        (request("GET", "/schemas/ids/12"), answer({"error_code": 40403}, 404)),
        (request("GET", "/schemas/ids/13"), answer({"schema": "text", "schemaType": "PROTOBUF"})),
        (request("GET", "/schemas/ids/13?format=serialized"), answer({"schema": "AA==", "schemaType": "PROTOBUF"})),
        (request("GET", "/schemas/ids/13"), answer({"schema": "text", "schemaType": "PROTOBUF"})),
        (request("GET", "/subjects"), answer(["a"])),
        (request("GET", "/schemas/ids/14"), answer(SCHEMA, coding="chunked gzip")),
        (request("GET", "/schemas/ids/15"), answer(SCHEMA, coding="close")),
    ):
        made.exchange(asked, found, 40)
    made.close("broker")
    return made


LEARNED = {
    **{f"schemas/ids/{number}": '"string"' for number in (7, 8, 9, 11, 14, 15)},
    **{"schemas/ids/10": "{}", "schemas/ids/13": "AA==", "schemas/guids/g-1": '"string"'},
    **{"subjects/a%2Fb/versions/3": '"string"', "subjects/d/versions/1": '"string"'},
}


def learn(packets: Sequence[Packet], tmp_path: Path) -> tuple[int, str, dict[str, str]]:
    """Exit code, what is said, and the schema of each file."""
    folder = tmp_path / "schemas"
    tmp_path.mkdir(exist_ok=True)
    done = kafkasniff("schemas", "learn", write_pcap(tmp_path / "in.pcap", packets), "-o", folder)
    files = {
        str(one.relative_to(folder).with_suffix("")): json.loads(one.read_text()) for one in folder.rglob("*.json")
    }
    return done.code, done.err.replace(str(folder), "OUT"), {name: found["schema"] for name, found in files.items()}


@pytest.mark.parametrize("change", [lambda packets, _: packets, disturb.retransmitted], ids=["whole", "retransmitted"])
def test_every_form(change: Callable[[list[Packet], Random], list[Packet]], tmp_path: Path) -> None:
    code, said, found = learn(change(talk().packets, Random(3)), tmp_path)
    assert found == LEARNED
    assert (code, said) == (Exit.OK, "kafkasniff: 8 schemas in OUT\n")


@pytest.mark.parametrize("change", [disturb.reordered, disturb.resegmented, disturb.overlapped])
def test_nothing_is_invented(change: Callable[[list[Packet], Random], list[Packet]], tmp_path: Path) -> None:
    """An exchange that does not begin with its first segment is missing."""
    found: set[tuple[str, str]] = set()
    for seed in range(5):
        learned = learn(change(talk().packets, Random(seed)), tmp_path / str(seed))[2].items()
        # Without the answer that has the descriptor, Protobuf is text.
        assert learned <= LEARNED.items() | {("schemas/ids/13", "text")}
        found |= learned
    assert found >= LEARNED.items()


def test_a_folder_decodes_the_values_of_a_capture(tmp_path: Path) -> None:
    """The same as one of `schemas fetch` does."""
    source, made = ROOT / "captures" / "librdkafka-registry", Conversation(broker=("10.0.0.9", 8081))
    made.handshake()
    for file in sorted(source.with_suffix(".registry").rglob("*.json")):
        path = file.relative_to(source.with_suffix(".registry")).with_suffix("")
        made.exchange(request("GET", f"/{path}"), answer(json.loads(file.read_text())))
    assert learn(made.packets, tmp_path)[0] == Exit.OK
    shown = [
        kafkasniff("decode", "-q", "--format=json", "--registry", folder, source.with_suffix(".pcap")).lines
        for folder in (tmp_path / "schemas", source.with_suffix(".registry"))
    ]
    assert shown[0] == shown[1]
    assert any("shop.Order" in line for line in shown[0])


def asked(found: bytes) -> list[Packet]:
    made = Conversation(("10.0.0.6", 40_000), ("10.0.0.9", 8081))
    made.handshake()
    made.exchange(request("GET", "/schemas/ids/7"), found)
    return made.packets


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (answer(SCHEMA)[:-1], "bytes are missing"),
        (answer(["x"]), "it is not JSON"),
        (answer({"schema": 1}), "it has no schema: "),
        (b"x" * (learning.MAX_HEAD + 1), "it is not HTTP"),
        (b"SSH-2\r\nContent-Length: 0\r\n\r\n", "the answer is not HTTP"),
        (HEAD + b"Content-Length: x\r\n\r\n", "its length is not a number"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nx\r\n", "its chunks are malformed"),
        (HEAD + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx", "its compression is unknown"),
        (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", "its compression is damaged"),
        (answer("x" * (learning.MAX_ANSWER + 1), coding="gzip"), "it is too large"),
        (answer("x" * (learning.MAX_ANSWER + learning.MAX_HEAD)), "it is too large"),
    ],
    ids=range(11),
)
def test_what_is_skipped(found: bytes, why: str, tmp_path: Path) -> None:
    code, said, files = learn(asked(found), tmp_path)
    assert said.startswith(f"kafkasniff: packet 4: GET {BASE}/schemas/ids/7 is skipped: {why}")
    assert said.endswith("kafkasniff: 0 schemas in OUT\n")
    assert (code, files) == (Exit.NOTHING, {})


def test_bounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(learning, "MAX_EXCHANGES", 3)
    packets = []
    for number in range(30):
        made = Conversation(client=("10.0.0.2", 40_000 + number), broker=("10.0.0.9", 8081))
        packets += made.send("client", request("GET", f"/schemas/ids/{number}"))
    code, said, _ = learn(packets, tmp_path)
    assert code == Exit.NOTHING
    assert said.count(": too many at once\n") == 20
    assert "kafkasniff: 10 more are skipped\n" in said
