"""Messages that the kernel blanks are those that `Blanker` makes, whatever their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.choice import DEEP, fewer
from tests.craft import kafka_bytes as kafka
from tests.kafka.records_craft import GZIP, Record, batch_of
from tests.redact.native_blanks import Case, by_kernel, by_python, case_of, reading
from tests.vectors.reader import vectors

MODES = {"all blank": (False, False), "payload shown": (False, True), "secrets shown": (True, False)}
"""Whether secrets and payload are shown."""
TIMES = 40 if DEEP else fewer(1, 3)


def known() -> Iterator[Case]:
    """All vectors, and records of every kind."""
    for vector in vectors():
        if vector.key is not None:
            found = case_of(vector.data, vector.key, vector.version, is_request=vector.kind == "request")
            if found is not None:
                yield found
    plain = [Record(0, 0, b"key", b"value", [("h", b"header"), ("n", None)]), Record(0, 1, None, b"v")]
    connect = [Record(0, 0, b"connector-a", b'{"properties":{"password":"secret"}}')]
    fields = [
        batch_of(plain),
        batch_of(plain, GZIP),
        batch_of(connect),
        batch_of(plain) * 2,
        batch_of(plain, attributes=0x20),
    ]
    fields += [batch_of(connect, codec) for codec in (1, 2, 3, 4)] + [batch_of(plain, 3) + batch_of(connect, 4)]
    fields += [batch_of(plain, 2) + batch_of(plain, 4)]
    fields += [fields[0][:-1], fields[0] + b"\0" * 20, kafka.record_batch([])]
    for topic in ("orders", "__consumer_offsets", "__own"):
        for field in fields:
            produce = kafka.produce_request(7, topic, field)[4:]
            yield case_of(produce, 0, 3, is_request=True) or pytest.fail("no case")
            fetch = kafka.fetch_response(7, topic, field, 9)[4:]
            yield case_of(fetch, 1, 4, is_request=False) or pytest.fail("no case")


def damaged(case: Case, random: Random) -> Case:
    """Some bytes of the body are others, or it has another size."""
    data = bytearray(case.data)
    for _ in range(random.choice((1, 1, 2, 8))):
        if case.body < len(data):
            at = random.randrange(case.body, len(data))
            way = random.randrange(4)
            if way == 0:
                data[at] = random.choice((0, 1, 2, 127, 128, 255))
            elif way == 1:
                data[at] ^= 1 << random.randrange(8)
            elif way == 2:
                data[at:at] = bytes(random.randrange(3))
            else:
                del data[at : at + random.randrange(3)]
    return case._replace(data=bytes(data))


@pytest.mark.parametrize("mode", MODES)
def test_the_kernel_shows_what_python_shows(mode: str) -> None:
    secrets, payload = MODES[mode]
    blanker, blanks = reading(secrets=secrets, payload=payload)
    random, cases = Random(mode), list(known())
    whole = by_kernel(blanks, cases)
    # Configurations, nested messages, and requests that later messages need are left to Python.
    assert sum(one is not None for one in whole) > 0.6 * len(cases)
    for _ in range(TIMES):
        cases += [damaged(case, random) for case in cases[: len(whole)]]
    taken = 0
    for case, found in zip(cases, by_kernel(blanks, cases), strict=True):
        if found is not None:
            assert found == by_python(blanker, case), (case.key, case.version, case.is_request, case.data.hex())
            taken += 1
    assert taken > 0.3 * len(cases)


def test_records_of_own_topics_are_left_to_python() -> None:
    """The same by the id of their topic."""
    own = bytes(range(16))
    field = kafka.record_batch([kafka.record(0, b"key", b"value")])
    cases = []
    for topic in (own, own[::-1], bytes(15) + b"\1"):
        data = kafka.fetch_response_by_id(7, [(topic, 0, field)])[4:]
        cases.append(case_of(data, 1, 13, is_request=False) or pytest.fail("no case"))
    for topics, expected in (((), [True, True, False]), (("AAECAwQFBgcICQoLDA0ODw",), [False, True, False])):
        _, blanks = reading(secrets=False, payload=False, own_topics=topics)
        assert [one is not None for one in by_kernel(blanks, cases)] == expected
