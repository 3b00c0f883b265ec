"""Events of a made-up cluster, as an inspector would emit them, and the view drawn as plain text."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from kafkasniff.live.screen import screen
from kafkasniff.live.snapshot import Breadcrumb, FindingRow, Findings, Snapshot
from kafkasniff.live.state import ViewState
from kafkasniff.live.top import TopModel
from kafkasniff.model import Connection, Endpoint, ErrorCode, Exchange, Message, Problem

START_NS = 1_781_000_000_000_000_000
SECOND = 1_000_000_000
BROKER = Endpoint("10.0.0.9", 9092)
KEYS = {"Produce": 0, "Fetch": 1, "Metadata": 3, "OffsetCommit": 8, "JoinGroup": 11, "Heartbeat": 12}

Event = Message | Exchange | Problem | Connection


def batches(*counts: int) -> dict[str, Any]:
    made = [{"record_count": count, "batch_length": 60 + 20 * count, "compression": "none"} for count in counts]
    return {"batches": made, "truncated_bytes": 0}


def produce_body(topic: str | bytes, *counts: int) -> dict[str, Any]:
    return {"topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": batches(*counts)}]}]}


def produced_body(topic: str | bytes, error: int = 0) -> dict[str, Any]:
    return {"responses": [{"name": topic, "partition_responses": [{"index": 0, "error_code": error}]}]}


def fetched_body(topic: str | bytes, *counts: int, error: int = 0, watermark: int = -1) -> dict[str, Any]:
    partition = {"partition_index": 0, "error_code": error, "high_watermark": watermark, "records": batches(*counts)}
    return {"responses": [{"topic": topic, "partitions": [partition]}]}


def commit_body(group: str, topic: str, offset: int, partition: int = 0) -> dict[str, Any]:
    partitions = [{"partition_index": partition, "committed_offset": offset}]
    return {"group_id": group, "topics": [{"name": topic, "partitions": partitions}]}


def committed_body(topic: str, error: int = 0, partition: int = 0) -> dict[str, Any]:
    return {"topics": [{"name": topic, "partitions": [{"partition_index": partition, "error_code": error}]}]}


class Talk:
    """One connection. Exchanges are numbered across all talks of a `Scene`."""

    def __init__(self, scene: Scene, number: int, client_id: str | bytes | None, address: str, software: str) -> None:
        self.scene = scene
        self.number = number
        self.client_id = client_id
        self.client = Endpoint(address, 51_000 + number)
        self.software = software

    def _message(self, kind: Any, size: int, number: int | None, key: Any, api: Any, **more: Any) -> Message:
        ends = {"exchange": number, "connection": self.number, "client": self.client, "broker": BROKER}
        return Message(kind, size, number, key, api, 9, self.client_id, **ends, **more)

    def request(self, at_ns: int, api: str, body: dict[str, Any] | None = None, size: int = 100) -> Message:
        self.scene.exchange += 1
        more = {"body": body, "time_ns": START_NS + at_ns}
        return self._message("request", size, self.scene.exchange, KEYS[api], api, **more)

    def response(
        self,
        request: Message,
        latency_ns: int,
        body: dict[str, Any] | None = None,
        size: int = 60,
        errors: tuple[ErrorCode, ...] = (),
    ) -> Message:
        more = {"body": body, "errors": errors, "time_ns": request.time_ns + latency_ns, "latency_ns": latency_ns}
        return self._message("response", size, request.exchange, request.api_key, request.api, **more)

    def end(self, request: Message, response: Message | None, status: Any = "answered") -> Exchange:
        latency = None if response is None else response.latency_ns
        software = {"software_name": self.software, "software_version": "1.0"} if self.software else {}
        return Exchange(request.exchange or 0, self.number, status, request, response, latency, **software)

    def closed(self) -> Connection:
        return Connection(self.number, self.number, "kafka", "fin", self.client, BROKER)


class Scene:
    def __init__(self) -> None:
        self.exchange = 0

    def whole(self, talk: Talk, at_ns: int, latency_ns: int, api: str, **answer: Any) -> Iterator[Event]:
        """A complete exchange and its end."""
        request = talk.request(at_ns, api, answer.pop("asked", None), answer.pop("sent", 100))
        response = talk.response(request, latency_ns, **answer)
        yield from (request, response, talk.end(request, response))


def _found(severity: str, detector: str, count: int, title: str, connection: int | None = None) -> FindingRow:
    meaning = f"What {detector} means, in a sentence or two that may well be longer than a line of a small terminal is."
    showing = () if connection is None else (connection,)
    return FindingRow(severity, title, meaning, f"advice on {detector}.", detector, title, count, showing)


FINDINGS = Findings(
    {"error": 2, "warning": 1, "note": 3},
    (
        _found(
            "error", "unanswered-requests", 4, "4 JoinGroup requests of consumer-billing-1 at 10.0.2.11 took 41 s", 3
        ),
        _found("error", "hanging-transactions", 1, r"the transaction of \x1b[2Jevil[bold] is open for 2 min", 5),
        _found("warning", "not-leader", 12, "12 requests of orders-service at 10.0.1.5 to who does not lead", 1),
        _found("note", "acks-zero", 1_234_567, "1,234,567 Produce requests of payments-service want no answer", 2),
        _found("note", "small-batches", 900, "payments-service sends 1.2 records in a batch", 2),
        _found("note", "all-topics", 6, "a client without an id asked for all topics 6 times"),
    ),
    ("not-leader: 3 more findings are not shown",),
    restarts=2,
)


def cluster() -> TopModel:
    """Two producers and three consumers, one with a hostile name, during twelve seconds; two requests are open."""
    model, scene = TopModel("eth0"), Scene()
    names: list[tuple[str | bytes | None, str, str]] = [
        ("orders-service", "10.0.1.5", "librdkafka"),
        ("payments-service", "10.0.1.6", "apache-kafka-java"),
        ("consumer-billing-1", "10.0.2.11", "apache-kafka-java"),
        ("consumer-billing-2", "10.0.2.12", "apache-kafka-java"),
        ("\x1b[2Jevil[bold]\nname", "10.6.6.6", ""),
        (None, "fd00::17", ""),
    ]
    talks = [Talk(scene, number, *name) for number, name in enumerate(names, 1)]
    model.advance(START_NS)
    model.captured(0, 0, 0)
    failed = (ErrorCode(6, "NOT_LEADER_OR_FOLLOWER", "responses[0].partition_responses[0].error_code"),)
    for step in range(120):
        at = step * SECOND // 10
        for talk in talks[:2]:
            topic = "orders" if talk.number == 1 else "payments.v2"
            error = 6 if step % 20 == 7 and talk.number == 1 else 0
            answer = {"body": produced_body(topic, error), "errors": failed if error else ()}
            asked = {"asked": produce_body(topic, 40 * talk.number), "sent": 1000 * talk.number}
            for event in scene.whole(talk, at, 900_000 + 40_000 * (step % 50), "Produce", **asked, **answer):
                model.take(event)
        if step % 5 == 0:
            for talk in talks[2:5]:
                topic = "__consumer_offsets" if talk.number == 5 else "orders"
                answer = {"body": fetched_body(topic, 180, watermark=4800 + 40 * step), "size": 40_000}
                for event in scene.whole(talk, at + 1000, 250_000_000 + step * 1_000_000, "Fetch", **answer):
                    model.take(event)
        if step % 30 == 0:
            for talk in talks:
                for event in scene.whole(talk, at + 2000, 2_100_000, "Metadata"):
                    model.take(event)
    for talk, group, topic in ((talks[2], "billing", "orders"), (talks[4], "a\x1b[2J", "__consumer_offsets")):
        answer = {"asked": commit_body(group, topic, 4321), "body": committed_body(topic)}
        for event in scene.whole(talk, 8 * SECOND, 3_000_000, "OffsetCommit", **answer):
            model.take(event)
    model.take(talks[2].request(int(8.5 * SECOND), "JoinGroup"))
    model.take(talks[5].request(int(9.2 * SECOND), "Metadata"))
    lost = talks[4].request(int(9.3 * SECOND), "Metadata")
    for event in (lost, talks[4].end(lost, None, "unanswered"), talks[4].closed()):
        model.take(event)
    model.take(Problem("tcp-gap", "bytes are missing"))
    model.advance(START_NS + 12 * SECOND)
    model.captured(31_415, 26, 6)
    return model


def drawn(snapshot: Snapshot, state: ViewState, width: int, height: int) -> str:
    """The screen as plain text, without trailing blanks."""
    buffer = io.StringIO()
    console = Console(
        file=buffer, width=width, height=height, color_system=None, legacy_windows=False, highlight=False, emoji=False
    )
    console.print(screen(snapshot, state, width, height))
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def opened(*steps: tuple[str, object]) -> ViewState:
    """The view after these steps, of (kind, value), at the table of exchanges."""
    path = tuple(Breadcrumb(kind, of, " ".join(of) if isinstance(of, tuple) else str(of)) for kind, of in steps)
    return ViewState(table=9, path=path, back=((0, None),) * len(path))


PICTURE_SIZE = (160, 36)
_SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px; \
line-height: {line_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Rich's own form asks the web for a font."""


def picture() -> str:
    """The screen with all tables as SVG, for the documents."""
    width, height = PICTURE_SIZE
    console = Console(file=io.StringIO(), width=width, height=height, record=True, force_terminal=True, emoji=False)
    console.print(screen(cluster().snapshot(findings=FINDINGS), ViewState(), width, height))
    return console.export_svg(title="kafkasniff live --top", code_format=_SVG, unique_id="top")
