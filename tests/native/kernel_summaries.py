"""Summaries by the kernel beside those that Python makes of the same bytes."""

from __future__ import annotations

import functools
from copy import deepcopy
from typing import Any

import numpy as np

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.kafka.schema.layout import FORMATS, Field
from kafkasniff.kafka.schema.uuids import uuid_text
from kafkasniff.model import Body, Message
from kafkasniff.native import kernel
from kafkasniff.native.caller import ITEM
from kafkasniff.native.calls import DONE
from kafkasniff.native.summaries import SummaryTable
from kafkasniff.sinks.summaries import summary
from kafkasniff.sinks.summaries.compiled import table_of
from kafkasniff.text.paint import PLAIN
from tests.evidence.decoded import objects
from tests.kafka import records_craft as craft
from tests.kafka.encode import Encoder, Plan, null, sized
from tests.native.kernel_and_walker import Kind, kinds, walked
from tests.native.summary_caller import SummaryCaller

HEADERS = DecodeOptions(records="batches")
"""What a body is decoded with whose summary alone is shown."""


@functools.cache
def table(key: int, version: int, direction: str) -> SummaryTable | None:
    """The table of a kind; None where Python makes all summaries."""
    found = table_of(key, version, direction)  # type: ignore[arg-type]
    return None if found is None else SummaryTable(kernel(), found)


@functools.cache
def kinds_with_tables() -> tuple[Kind, ...]:
    """The layouts of which the kernel writes summaries."""
    return tuple(
        kind for kind in kinds() if kind.key is not None and table(kind.key, kind.version, kind.direction) is not None
    )


def written(  # noqa: PLR0917 - a body, and what is known of it
    caller: SummaryCaller, kind: Kind, data: bytes, start: int, end: int, session: int = -1
) -> tuple[str, int] | None:
    """The summary and where the body ends; None where it is left to Python."""
    assert kind.key is not None
    found = table(kind.key, kind.version, kind.direction)
    assert found is not None
    items = np.zeros(1, ITEM)
    items["program"], items["start"], items["end"] = found.address, start, end
    looked = caller.write(data, items, session)
    assert looked == 1
    if items["status"][0] != DONE:
        return None
    return str(caller.view[: int(items["output_end"][0])], "utf-8"), int(items["after"][0])


def agree_on_summary(  # noqa: PLR0917 - a body, and what is known of it
    caller: SummaryCaller,
    kind: Kind,
    data: bytes,
    start: int,
    end: int,
    names: dict[bytes, str] | None = None,
    session: int = -1,
) -> bool:
    """Whether the kernel wrote the summary; raises AssertionError where Python makes another one, or reports more."""
    made = written(caller, kind, data, start, end, session)
    if made is None:
        return False
    result, context = walked(kind.root, data, start, end, HEADERS)
    assert context.problems == []
    assert (made[1], result.complete) == (result.position, True)
    body = deepcopy(result.body)
    name_topics(body, {uuid_text(topic_id): name for topic_id, name in (names or {}).items()})
    if session >= 0 and "session_epoch" in body and (body["session_id"], body["session_epoch"]) != (0, -1):
        body["_session"] = {"partitions": session}
    text = expected(kind, body, tuple(context.errors))
    assert made[0] == text, f"{made[0]!r}, but Python makes {text!r}"
    return True


def expected(kind: Kind, body: Body, errors: tuple[Any, ...]) -> str:
    """What the interpreter makes of a body."""
    assert kind.key is not None
    found = api(kind.key)
    assert found is not None
    reported = Message(
        kind.direction, 0, api_key=kind.key, api=found.name, api_version=kind.version, body=body, errors=errors
    )
    return summary(reported, PLAIN)


def name_topics(body: Any, names: dict[str, str]) -> None:
    """Put names beside topic ids, as an enricher does."""
    for one in objects(body):
        if "topic_id" in one and one.get("name", one.get("topic")) is None and one["topic_id"] in names:
            one["_topic_name"] = names[one["topic_id"]]


class TameEncoder(Encoder):
    """Bodies that the kernel takes: plain names, records that are right. `ids`: the topic ids in them.

    `failing`: the share of error codes that are not 0.
    """

    def __init__(self, plan: Plan, failing: float = 0.0) -> None:
        super().__init__(plan)
        self.ids: list[bytes] = []
        self.failing = failing

    def scalar(self, field: Field, nullable: bool) -> bytes:
        rng = self.rng
        if field.type == "error" or field.name == "throttle_time_ms":
            code = rng.choice([-1, 1, 3, 6, 6, 14, 74, 129, 999]) if rng.random() < self.failing else 0
            return code.to_bytes(FORMATS[field.type][1], "big", signed=True)
        if field.type == "uuid":
            raw = rng.choice([bytes(16), rng.randbytes(16)])
            if any(raw):
                self.ids.append(raw)
            return raw
        if field.type not in {"string", "records"}:
            return super().scalar(field, nullable)
        if nullable and self.plan.flip(self.plan.nulls):
            return null(field)
        if field.type == "string":
            raw = rng.choice([b"a", b"orders", b"a b", b'x"y', b"", b"t" * 64, b"u" * 65, b"z" * 200, b"::1"])
        else:
            raw = b"".join(self._batch() for _ in range(rng.choice([0, 1, 1, 2, 5])))
            if raw and not field.whole and rng.random() < 0.3:
                raw += raw[: rng.randrange(len(raw))]
        return sized(field, raw)

    def _batch(self) -> bytes:
        rng = self.rng
        attributes = rng.choice([0, 0, 1, 2, 3, 4]) | rng.choice([0, 0, 0x10, 0x30, 0x40])
        payload = rng.randbytes(rng.choice([0, 1, 40, 2000]))
        return craft.batch(
            payload, rng.choice([0, 1, 12, 100_000]), attributes=attributes, base_offset=rng.randrange(1 << 40)
        )
