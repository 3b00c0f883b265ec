"""Lines of single messages by the kernel equal those of the JSON sink.

The first byte of an input selects how values are shown, the second a request or the response to one, with the key and
version in the next two. Without the kernel nothing is checked. `native_lines.py` gives the kernel many more messages,
without Python.
"""

from __future__ import annotations

import functools
from typing import Final

from kafkasniff.capture import open_captures
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.redact.payload import SHOWN, Payload
from kafkasniff.sinks.jsonl import BytesForm
from tests.conftest import shipped_captures
from tests.fuzz.intake import Intake
from tests.native.feed_messages import Native, Side, batches, by_sink, crafted, recorded

MAX_LENGTH = 4000
MEGABYTES = 64
WORDS = (b"\xff\xff\xff\xff", b"\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x80\x01", b"\xed\xa0\x80", b'\\"\x1f', b"__")

_FORMS: Final[tuple[BytesForm, ...]] = ("auto", "base64", "hex")
_HIDDEN: Final = 4
"""Bit of the first byte: secrets are hidden."""
_PAYLOAD: Final = 8
"""What the first byte is divided by, for one of these."""
_WAYS: Final = (SHOWN, Payload("dropped"), Payload.hashed(b"salt of the fuzzer"))
_CAPTURES: Final = "librdkafka-codecs", "java-errors", "java-group-consumer", "java-1.1", "kafka-python-group"


@functools.cache
def _native(form: BytesForm, shown: bool, payload: Payload, side: Side) -> Native:
    return Native([side], ["capture"], DecodeOptions(show_secrets=shown), form, payload)


def one_input(data: bytes) -> None:
    intake = Intake(data)
    how, is_response = intake.number(), intake.number() % 2
    kind = (intake.number(), intake.number()) if is_response else None
    form, shown = _FORMS[how % 3], not how & _HIDDEN
    payload = _WAYS[how // _PAYLOAD % 3]
    one = crafted(intake.rest(), kind, DecodeOptions(show_secrets=shown))
    if one is None:
        return
    (batch,) = batches([one], 1, client_ids={7: b"client"})
    (piece,) = _native(form, shown, payload, one.connection).of(batch)
    if not isinstance(piece, int):
        assert [piece] == by_sink(batch, form, payload)


def seeds() -> list[bytes]:
    found = []
    for path in shipped_captures():
        if path.stem not in _CAPTURES:
            continue
        with open_captures([str(path)], stdin=None) as source:
            _, seen = recorded(source)
        kinds: set[tuple[object, ...]] = set()
        for one in seen:
            message = one.message
            kind = message.api_key, message.api_version, message.type, bool(message.errors)
            if kind in kinds or len(one.data) > MAX_LENGTH - 4:
                continue
            kinds.add(kind)
            how = len(found) % (3 * _PAYLOAD)
            assert message.api_key is not None
            assert message.api_version is not None
            head = (0,) if one.event.is_request else (1, message.api_key, message.api_version)
            found.append(bytes((how, *head)) + one.data)
    return found
