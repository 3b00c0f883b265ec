"""What the kernel makes of bytes beside what Python makes of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.record_facts import HEADERS as SCHEMA_HEADERS
from kafkasniff.kafka.record_facts import TRACE_KINDS
from kafkasniff.kafka.records import record_list, record_sets
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions, Ended, Odd
from kafkasniff.kafka.schema.definition import Struct, program_of
from kafkasniff.kafka.schema.packed import Decoder, decoder_of
from kafkasniff.kafka.schema.schema import data_definitions, data_schema
from kafkasniff.kafka.schema.secrets import CONNECT_KEYS
from kafkasniff.kafka.schema.walker import Walk, add_noted, walk, walk_ended
from kafkasniff.model import Direction
from kafkasniff.native import kernel
from kafkasniff.native.caller import Caller, Made, Program
from kafkasniff.native.library import FORMS, PAYLOAD, RECORDS, SHOW_SECRETS
from kafkasniff.redact.payload import SHOWN, Payload
from kafkasniff.sinks.jsonl import BytesForm, body_json


@contextmanager
def records_by_python() -> Iterator[None]:
    """Records are read by Python, which is the specification, one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_list, "read_record_list", lambda *_, **_named: None)
        yield


class Kind(NamedTuple):
    """A layout, and whose it is."""

    root: Struct
    key: int | None
    """None for data blocks."""
    version: int
    direction: Direction = "request"

    def hidden(self, body: Any, payload: Payload) -> Any:
        """A body of this kind without payload."""
        return (
            body
            if self.key is None or not payload.hides
            else payload.body(self.key, self.version, self.direction, body)
        )


def kinds() -> Iterator[Kind]:
    """The layouts of all messages and data blocks, in one order."""
    for key in api_keys():
        found = api(key)
        assert found is not None
        for version in found.versions:
            yield Kind(found.request(version).root, key, version, "request")
            yield Kind(found.response(version).root, key, version, "response")
    for name, definition in data_definitions().items():
        for version in range(definition.message.versions.low, definition.message.versions.high + 1):
            schema = data_schema(name, version)
            assert schema is not None
            yield Kind(schema.root, None, version)


def caller(
    *, form: BytesForm = "auto", records: str = "full", show_secrets: bool = True, payload: Payload = SHOWN
) -> Caller:
    """A caller that wants this."""
    headers = [name.encode() for name in SCHEMA_HEADERS]
    made = Caller(kernel(), headers=headers, marks=CONNECT_KEYS, traces=TRACE_KINDS)
    made.wants = FORMS[form] | RECORDS[records] | (SHOW_SECRETS if show_secrets else 0) | PAYLOAD[payload.form]
    made.hide(payload.hiding)
    return made


@functools.cache
def program(root: Struct) -> Program:
    """The program of a layout."""
    return Program(kernel(), program_of(root))


@functools.lru_cache(maxsize=1)
def walked(root: Struct, data: bytes, start: int, end: int, options: DecodeOptions) -> tuple[Walk, DecodeContext]:
    """What the walker reads, and its context. JSON and dicts of the same bytes are compared one after the other."""
    context = DecodeContext(options, start)
    with records_by_python():
        result = walk(root, data, start, end, context, record_sets)
    return result, context


def hidden_records(records: dict[str, Any], payload: Payload) -> dict[str, Any]:
    """A decoded `records` field without payload, where that is hidden."""
    if not payload.hides:
        return records
    batches = [
        {**batch, "records": [payload.record(record) for record in batch["records"]]} if "records" in batch else batch
        for batch in records["batches"]
    ]
    return {**records, "batches": batches}


def agree(  # noqa: PLR0917 - a body, and where it is
    made: Made | None,
    root: Struct,
    data: bytes,
    start: int,
    end: int,
    options: DecodeOptions,
    form: BytesForm = "auto",
    *,
    hide: Callable[[Any], Any] | None = None,
) -> bool:
    """Whether the kernel took the body; raises AssertionError where it says anything else than the walker.

    `hide`: makes of the walker's body the one without payload.
    """
    if made is None:
        return False
    result, context = walked(root, data, start, end, options)
    noted = DecodeContext(options, start)
    add_noted(noted, made.problems)
    assert noted.problems == context.problems
    assert (made.after, walk_ended(made.problems)) == (result.position, not result.complete)
    assert made.json.decode() == body_json(result.body if hide is None else hide(result.body), form)
    assert made.codes == [(error.code, error.path) for error in context.errors]
    return True


@functools.cache
def decoder(root: Struct) -> Decoder:
    """What reads a layout as dicts."""
    return decoder_of(kernel(), root, record_sets)


def agree_on_dicts(root: Struct, data: bytes, start: int, end: int, options: DecodeOptions) -> bool:
    """Whether the kernel took the body as a dict; raises AssertionError where it says anything else than the walker."""
    context = DecodeContext(options, start)
    try:
        body, after = decoder(root)(data, start, end, context)
        complete = True
    except Ended as ended:
        body, after, complete = ended.body, ended.position, False
    except Odd:
        return False
    result, expected = walked(root, data, start, end, options)
    # Compared as text, which distinguishes bytes from strings, shows the order of fields, and has equal NaNs.
    assert repr(body) == repr(result.body)
    assert (after, complete) == (result.position, result.complete)
    assert context.problems == expected.problems
    assert context.errors == expected.errors
    assert (context.truncated, context.problems_dropped) == (expected.truncated, expected.problems_dropped)
    return True
