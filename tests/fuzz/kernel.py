"""Bodies of every version in both directions, and fields of records: the kernel agrees with the walker.

The first byte of an input selects how values are shown, and the handling of payload. The next two select the layout, or
a field of records. If the kernel accepts the bytes, the walker makes the same JSON and the same dict of them, and
reports the same problems. `native_kernel.py` gives the kernel many more inputs.
"""

from __future__ import annotations

import functools
import random
from typing import Final

from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.redact.payload import SHOWN, Payload
from kafkasniff.sinks.jsonl import BytesForm, body_json
from tests.fuzz.intake import Intake
from tests.kafka import records_craft as craft
from tests.kafka.encode import Encoder, Plan
from tests.native.kernel_and_walker import (
    Kind,
    agree,
    agree_on_dicts,
    caller,
    hidden_records,
    kinds,
    program,
    records_by_python,
)

MAX_LENGTH = 4000
MEGABYTES = 64
WORDS = (b"\xff\xff\xff\xff", b"\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x80\x01", b"\xed\xa0\x80", b'\\"\x1f', b"__")

FORMS: Final[tuple[BytesForm, ...]] = ("auto", "base64", "hex")
HIDDEN: Final = 4
"""Bit of the first byte: secrets are hidden."""
PAYLOAD: Final = 8
"""What the first byte is divided by, for one of these."""
SALT: Final = b"salt of the fuzzer"
WAYS: Final = (SHOWN, Payload("dropped"), Payload.hashed(SALT))


@functools.cache
def _layouts() -> list[Kind]:
    return list(kinds())


_caller = functools.cache(caller)


def agrees(
    kind: Kind | None, data: bytes, form: BytesForm = "auto", payload: Payload = SHOWN, *, shown: bool = True
) -> bool:
    """Whether the kernel takes a body, or a field of records; raises AssertionError if Python reads anything else."""
    asks = _caller(form=form, show_secrets=shown, payload=payload)
    options = DecodeOptions(show_secrets=shown)
    if kind is not None:
        made = asks.body(program(kind.root), data, 0, len(data), lambda _: None)
        hide = functools.partial(kind.hidden, payload=payload)
        as_json = agree(made, kind.root, data, 0, len(data), options, form, hide=hide)
        return agree_on_dicts(kind.root, data, 0, len(data), options) or as_json
    made = asks.records(data, 0, len(data), lambda _: None)
    if made is None:
        return False
    context = DecodeContext(options)
    with records_by_python():
        expected = hidden_records(decode_records(data, 0, len(data), context), payload)
    assert made.json.decode() == body_json(expected, form)
    assert context.problems == []
    return True


def one_input(data: bytes) -> None:
    intake = Intake(data)
    how, index = intake.number(), intake.number(2)
    kind = _layouts()[index] if index < len(_layouts()) else None
    agrees(kind, intake.rest(), FORMS[how % 3], WAYS[how // PAYLOAD % 3], shown=not how & HIDDEN)


def seeds() -> list[bytes]:
    rng = random.Random(1)
    found = []
    for index, kind in enumerate(_layouts()):
        body = Encoder(Plan(rng)).body(kind.root)
        if len(body) < MAX_LENGTH - 3:
            found.append(bytes((rng.randrange(3 * PAYLOAD),)) + index.to_bytes(2, "big") + body)
    for count in (0, 1, 3, 20):
        records = [craft.Record(at, at, b"key", b"value", (("größe", None),)[: at % 2]) for at in range(count)]
        for attributes in (0, 0x08, 0x10, 0x40):
            field = craft.batch_of(records, attributes=attributes)
            found.append(b"\0\xff\xff" + field + field[: count * 3])
        for magic in (0, 1):
            messages = [craft.message(at, b"key", b"value", magic=magic) for at in range(count)]
            found.append(bytes((PAYLOAD * magic,)) + b"\xff\xff" + b"".join(messages))
    return found
