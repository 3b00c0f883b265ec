"""Lines of single messages by the kernel equal those that Python writes.

The first byte of an input selects how values are shown, the second a request or the response to one, with the key and
version in the next two; the message follows. `native_lines.py` gives the kernel many more messages, without Python.
"""

from __future__ import annotations

from tests.craft import kafka_bytes as kafka
from tests.engine.shown import agree
from tests.engine.talks import exchange_of
from tests.fuzz.corpus import spread, vectors_of
from tests.fuzz.intake import Intake
from tests.fuzz.kernel import FORMS, HIDDEN, PAYLOAD, WAYS, WORDS
from tests.native.test_lines import framed, spoken

__all__ = ["DEAR", "MAX_LENGTH", "MEGABYTES", "WORDS", "one_input", "seeds"]

MAX_LENGTH = 4000
DEAR = 2
MEGABYTES = 64


def one_input(data: bytes) -> None:
    intake = Intake(data)
    how, is_response = intake.number(), intake.number() % 2
    key, version = (intake.number(), intake.number()) if is_response else (0, 0)
    message = intake.rest()
    correlation = message[:4] if is_response else message[4:8]
    number = int.from_bytes(correlation, "big", signed=True)
    asked = framed(key, version, "request", b"")(number) if is_response else kafka.frame(message)
    answer = kafka.frame(message) if is_response else kafka.response(number, bytes(8))
    sink = {"form": FORMS[how % 3], "payload": WAYS[how // PAYLOAD % 3]}
    batches = spoken([exchange_of(lambda _: asked, lambda _: answer, (60_000,))])
    agree("json", batches, options={"show_secrets": not how & HIDDEN}, sink=sink)


def seeds() -> list[bytes]:
    found = []
    for number, vector in enumerate(spread(vectors_of("request", "response", longest=MAX_LENGTH - 4), 400)):
        head = (0,) if vector.kind == "request" else (1, vector.key or 0, vector.version)
        found.append(bytes((number % (3 * PAYLOAD), *head)) + vector.data)
    return found
