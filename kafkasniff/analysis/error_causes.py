"""Details of errors in a response, beside their codes: what was refused, and why, in the broker's words.

Both are derived from the definitions, so a new API needs no code. The message of a code is the adjacent string whose
name is the code's with `message` instead of `code` (`error_code` and `error_message`); strings of such a name in
structs without a code of their own (Produce's `record_errors`) belong to the enclosing code. The name next to the code
shows what was refused: a group, a resource, the key of FindCoordinator.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from kafkasniff.analysis.columns import SelectedRows, column, failed_partitions, integers, numbered
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.apis.entities import EntityPlan, plan_of
from kafkasniff.kafka.schema.codes import ZERO_UUID
from kafkasniff.kafka.schema.definition import FieldDefinition

CODE: Final = "error_code"
MESSAGE: Final = "error_message"
MAX_CAUSES: Final = 10_000
"""Maximum number of errors of one response that are examined; for the others only the codes count."""
MAX_REMEMBERED: Final = 4096
"""Maximum length of a body that is read once for all detectors."""
NAMES: Final = ("group_id", "transactional_id", "resource_name", "key", "user", "member_id", "log_dir", "feature")
"""Fields that name the subject of a struct, besides topics."""
CAUSE_COLUMNS: Final = ("api_key", "error_code", "error_count", "partitions", "response_body")
"""What `causes_of` reads."""
_NOTHING: Final = EntityPlan()


class Cause(msgspec.Struct, frozen=True):
    """An error code of a response."""

    code: int
    topic: str | None = None
    """Name, or id if only that is known."""
    field: str | None = None
    """Name of the field with `name`."""
    name: str | None = None
    """Name of the refused resource, unless it is a topic."""
    message: str | None = None
    """The broker's reason, with U+FFFD where bytes are not UTF-8; not safe to print."""
    partition: bool = False
    """It belongs to one partition."""
    index: int | None = None
    """The partition's number."""
    code_field: str = CODE
    """Name of the field with the code; a partition of ShareFetch has a second one."""


@lru_cache(maxsize=1024)  # keys come from the wire
def carries_messages(api_key: int) -> bool:
    """Whether responses of an API may have more details than codes."""
    api = dissectors.api(api_key)
    return api is not None and _any_message(api.definition.response.fields)


def _any_message(fields: tuple[FieldDefinition, ...]) -> bool:
    return any(field.name.endswith(MESSAGE) or _any_message(field.fields) for field in fields)


def causes_in(api_key: int, body: str) -> tuple[Cause, ...]:
    """The errors of a response body that are not zero, each with details from the enclosing structs.

    `body`: as JSON, possibly truncated; then there are none.
    """
    return _remembered(api_key, body) if len(body) <= MAX_REMEMBERED else _read(api_key, body)


def _read(api_key: int, body: str) -> tuple[Cause, ...]:
    try:
        return tuple(_causes(api_key, msgspec.json.decode(body)))
    except msgspec.DecodeError:
        return ()


_remembered: Final = lru_cache(maxsize=1024)(_read)


def _causes(api_key: int, body: Any) -> Iterator[Cause]:
    waiting: list[tuple[Any, EntityPlan, str | None]] = [(body, plan_of(api_key, "response") or _NOTHING, None)]
    found = 0
    while waiting and found < MAX_CAUSES:
        node, plan, topic = waiting.pop()
        if isinstance(node, list):
            waiting += [(one, plan, topic) for one in reversed(node)]
            continue
        if not isinstance(node, dict):
            continue
        topic = _topic(node, plan) or topic
        named = next((field for field in NAMES if isinstance(node.get(field), str)), None)
        codes = [field for field, value in node.items() if isinstance(value, int) and field.endswith(CODE)]
        for field in codes:
            if node[field]:
                found += 1
                # A message about single records is more precise than one about all.
                message = next(_messages_below(node), None) or node.get(field.removesuffix(CODE) + MESSAGE)
                index = None if plan.index is None else node.get(plan.index)
                index = index if isinstance(index, int) else None
                name = None if named is None else node[named]
                yield Cause(node[field], topic, named, name, _words(message), index is not None, index, field)
        below = dict(plan.children)
        for field, value in reversed(node.items()):
            # Fields that kafkasniff adds (`_value` …) repeat the wire's fields and are not part of the response.
            if isinstance(value, dict | list) and not field.startswith("_"):
                waiting.append((value, below.get(field, _NOTHING), topic))


def _words(message: Any) -> str | None:
    """A string of a body as text: bytes that are not UTF-8 come as base64."""
    if isinstance(message, dict) and isinstance(message.get("base64"), str):
        return base64.b64decode(message["base64"]).decode(errors="replace")
    return message if isinstance(message, str) else None


def _topic(node: dict[str, Any], plan: EntityPlan) -> str | None:
    named = node.get(plan.topic) if plan.topic else None
    if not isinstance(named, str) or not named:
        named = node.get("_topic_name") or (node.get(plan.topic_id) if plan.topic_id else None)
    return named if isinstance(named, str) and named != ZERO_UUID else None


def _messages_below(node: dict[str, Any]) -> Iterator[Any]:
    """Messages of the structs below that have no code of their own."""
    for value in node.values():
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, dict) and not any(field.endswith(CODE) for field in one):
                yield from (text for field, text in one.items() if field.endswith(MESSAGE) and text)


def causes_of(batch: pa.RecordBatch) -> tuple[list[list[Cause]], np.ndarray[Any, np.dtype[np.int64]]]:
    """Different errors of exchanges, with details from their bodies, and which of them each exchange has.

    Equal bodies are read once.
    """
    rows = SelectedRows.of(batch)
    numbers = (integers(column(rows, name), null=-1 << 31) for name in ("api_key", "error_code", "error_count"))
    firsts, number = numbered(*numbers, rows.codes("response_body")[0])
    bodies = rows.at(firsts)
    found: list[list[Cause]] = []
    whole: list[bool] = []
    names = ("api_key", "error_count", "response_body")
    for api_key, count, body in zip(*(column(bodies, name).to_pylist() for name in names), strict=True):
        found.append([] if api_key is None or body is None else list(causes_in(api_key, body)))
        # The body may be truncated, or have more errors than are examined.
        whole.append(0 < count <= len(found[-1]))
    rest = np.flatnonzero(~np.array(whole, np.bool_)[number])
    codes = column(batch, "error_code").take(pa.array(rest)).to_pylist()
    for row, first, partitions in zip(rest.tolist(), codes, failed_partitions(batch.take(pa.array(rest))), strict=True):
        own = [
            Cause(
                partition["error_code"],
                partition["topic"] or partition["topic_id"],
                partition=True,
                index=partition["partition"],
            )
            for partition in partitions
        ]
        own = max(own, found[number[row]], key=len) or ([Cause(first)] if first else [])
        number[row] = len(found)
        found.append(own)
    return found, number
