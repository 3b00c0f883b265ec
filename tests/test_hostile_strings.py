"""Hostile names do nothing to a terminal: no escapes, line breaks, markup or invisible characters."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from textual.pilot import Pilot

from kafkasniff.analysis import question_names
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.cli.environment import Exit
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.text.printable import printable
from tests.browse.screen.driving import drive, listed, settled
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.craft.conversation import Conversation
from tests.craft.from_layout import request_bytes, response_bytes
from tests.craft.kafka_bytes import int32
from tests.craft.packet import Packet
from tests.craft.write import write_pcap
from tests.kafka.records_craft import Record, batch_of
from tests.outputs import watched

EVIL = {
    "title": "\x1b]0;owned\x07",
    "colour": "\x1b[31mred",
    "eight-bit": "\x9b31mred",
    "line": "a\r\n04:00:00 forged line",
    "back": "a\b\b\bb",
    "markup": "[bold red]loud[/] [link=http://x]y[/link] [/]",
    "bidi": "\u202egnp.exe",
    "isolate": "\u2066a\u2069",
    "invisible": "a\u200bb\u2028c\ufeff",
    "formula": "=cmd|'/c calc'!A1",
    "html": "<script>alert(1)</script>&quot;",
    "null": "a\0b",
}
OUR_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def with_client(message: bytes, client_id: bytes) -> bytes:
    """A framed request of the client `crafted`, with another client id."""
    body = message[4:].replace(b"\0\x07crafted", len(client_id).to_bytes(2) + client_id, 1)
    return int32(len(body)) + body


def talk(number: int, text: str) -> Conversation:
    """Everything that a peer can name, and an error message of the broker, is `text`."""
    made = Conversation(("10.0.0.5", 50_000 + number), ("10.0.0.9", 9092))
    made.handshake()
    client = text.encode()
    records = batch_of([Record(0, 0, client, client, ((text, client),))])
    data = [{"name": text, "partition_data": [{"index": 0, "records": records}]}]
    refused = [{"name": text, "partition_responses": [{"index": 0, "error_code": 87, "error_message": text,
                "record_errors": [{"batch_index": 0, "batch_index_error_message": text}]}]}]  # fmt: skip
    coordinators = [{"key": text, "node_id": 1, "host": text, "port": 9092, "error_message": text}]
    configs = [{"name": text, "value": text}]
    for asked, answered in (
        (request_bytes(18, 3, 1, client_software_name=text, client_software_version=text),
         response_bytes(18, 3, 1, api_keys=[{"max_version": 9}])),
        (request_bytes(3, 9, 2, topics=[{"name": text}]),
         response_bytes(3, 9, 2, cluster_id=text, brokers=[{"node_id": 1, "host": text, "port": 9092, "rack": text}],
                        topics=[{"name": text, "error_code": 3}])),
        (request_bytes(0, 9, 3, acks=1, transactional_id=text, topic_data=data),
         response_bytes(0, 9, 3, responses=refused)),
        (request_bytes(10, 4, 4, coordinator_keys=[text]), response_bytes(10, 4, 4, coordinators=coordinators)),
        (request_bytes(11, 7, 5, group_id=text, member_id=text, group_instance_id=text, protocol_type=text,
                       protocols=[{"name": text, "metadata": client}]),
         response_bytes(11, 7, 5, protocol_type=text, protocol_name=text, leader=text, member_id=text)),
        (request_bytes(32, 4, 6, resources=[{"resource_type": 2, "resource_name": text}]),
         response_bytes(32, 4, 6, results=[{"resource_name": text, "error_message": text, "configs": configs}])),
        (request_bytes(17, 1, 7, mechanism=text), response_bytes(17, 1, 7, error_code=33, mechanisms=[text])),
    ):  # fmt: skip
        made.exchange(with_client(asked, client), answered)
    made.close()
    return made


def packets(text: str) -> list[Packet]:
    return talk(0, text).packets


def harmless(text: str) -> None:
    """Only visible characters, line feeds and our own colours."""
    for character in OUR_COLOURS.sub("", text):
        assert character == "\n" or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    talks = [one for number, text in enumerate(EVIL.values()) for one in talk(number, text).packets]
    return write_pcap(tmp_path_factory.mktemp("evil") / "evil.pcap", talks)


@pytest.fixture(scope="module")
def exported(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "out"
    assert kafkasniff("export", capture, "--output", folder).code == Exit.OK
    return folder


@pytest.mark.parametrize(
    "options", [[], ["-v"], ["-vv", "--color", "always"], ["-xx"], ["-x", "--color", "always"]], ids=" ".join
)
def test_lines_and_trees(capture: Path, options: list[str]) -> None:
    result = kafkasniff("decode", *options, capture)
    assert result.code == Exit.OK
    harmless(result.text)
    harmless(result.err)
    shown = OUR_COLOURS.sub("", result.text)
    for name, text in EVIL.items():
        assert printable(text)[:6] in shown, name
    # Markup is text.
    assert not options or "[link=http://x]" in shown
    if not options:
        benign = [one for number in range(len(EVIL)) for one in talk(number, "benign").packets]
        path = write_pcap(capture.with_name("benign.pcap"), benign)
        assert len(result.lines) == len(kafkasniff("decode", path).lines) > 14 * len(EVIL)


def test_json_on_a_terminal(capture: Path, exported: Path) -> None:
    """The same values with escapes where a terminal would act on them, unchanged elsewhere."""
    message = request_bytes(3, 9, 1, topics=[{"name": "".join(EVIL.values()) + "\U000e0041"}]).hex()
    for arguments in (["decode", "--format", "json", capture], ["decode-bytes", "--format", "json", message],
                      ["analyze", "talkers", exported, "--format", "json"]):  # fmt: skip
        shown, plain = kafkasniff(*arguments, stdout_tty=True), kafkasniff(*arguments)
        harmless(shown.text)
        # Not with `splitlines`, which treats U+2028 as a line break.
        one, other = ([json.loads(line) for line in result.text.split("\n")[:-1]] for result in (shown, plain))
        assert one == other != []


def test_answers(capture: Path, exported: Path) -> None:
    questions = [["analyze", question, exported] for question in question_names()]
    for command in (["security", capture], *one_in(6, questions)):
        result = kafkasniff(*command, "--color", "always", stdout_tty=True, width=300)
        assert result.code == Exit.OK, command
        harmless(result.text)
        harmless(result.err)


@pytest.mark.extended
def test_the_explorer(tmp_path: Path) -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        rows = listed(app)
        assert len(rows.index) > 0

        def shown() -> None:
            strips = app.screen._compositor.render_strips()
            assert len(strips) == app.size.height
            for strip in strips:
                harmless("".join(segment.text for segment in strip))

        for number in range(len(rows.index)):
            # One exchange is enough for the menu, and the filter made from it.
            menu = (("F",), ("down", "enter"), ("backspace",)) if number == 2 else ()
            for keys in (("enter",), *menu):
                await pilot.press(*keys)
                await settled(app, pilot)
                shown()
            assert not app._error
            await pilot.press("escape", "j")
        await pilot.press("o")
        await settled(app, pilot)
        shown()

    drive(steps, write_pcap(tmp_path / "evil.pcap", packets("".join(EVIL.values()))), size=(200, 40))


def test_pasted_bytes() -> None:
    for text in EVIL.values():
        message = with_client(request_bytes(3, 9, 1, topics=[{"name": text}]), text.encode())
        result = kafkasniff("decode-bytes", "-v", "--color", "always", message.hex())
        harmless(result.text)
        harmless(result.err)


def test_views_of_a_live_run() -> None:
    for text in EVIL.values():
        screens, scraped = watched(packets(text))
        harmless(screens)
        harmless(scraped)
        assert list(text_string_to_metric_families(scraped))


def test_quotations_in_internal_errors(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: JsonSink, event: object) -> None:
        raise RuntimeError("".join(EVIL.values()))

    monkeypatch.setattr(JsonSink, "line", fail)
    result = kafkasniff("decode", "-v", "--format", "json", capture)
    assert result.code == Exit.INTERNAL
    harmless(result.err)
