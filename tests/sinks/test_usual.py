"""The short ways for bodies of the usual shape against the summaries of their APIs, which take bodies as they come."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.kafka import dissectors
from kafkasniff.kafka.context import DecodeContext, DecodeOptions
from kafkasniff.model import Direction, ErrorCode, Message
from kafkasniff.sinks.paint import COLOUR
from kafkasniff.sinks.summaries import full_summary, summary, usual
from kafkasniff.sinks.summaries.phrases import SHOWN
from tests.enrich.talks import of_capture
from tests.kafka.encode import Encoder, Plan
from tests.sinks.messages import BATCH, PRODUCE, PRODUCED, message

CAPTURES = Path(__file__).parents[2] / "captures"
USUAL = [("request", key) for key in usual.USUAL_REQUESTS] + [("response", key) for key in usual.USUAL_RESPONSES]
ODD: dict[type, list[Any]] = {
    str: [None, "", "a b", "__x", "x" * 300, "größe\x1b", b"\xff\xfe", {"redacted": 7}],
    int: [0, 1, -1, 5, None],
    list: [None, [], [None], [{}]],
    dict: [None, {}],
}
"""What a decoder may yield in the place of a usual value: nulls, names that are quoted, cut or not UTF-8, secrets …"""


def outcome(tell: Callable[..., str], one: Message) -> str | type[Exception]:
    # In structs that no decoder yields (`{}` for a batch) the same is missed both ways.
    try:
        return tell(one, COLOUR)
    except (TypeError, KeyError, AttributeError) as error:
        return type(error)


def is_short(one: Message) -> bool:
    """Whether the short way is taken."""
    table = usual.USUAL_REQUESTS if one.type == "request" else usual.USUAL_RESPONSES
    try:
        return one.body is not None and one.api_key in table and table[one.api_key](one.body) is not None
    except usual.UNUSUAL:
        return False


def bodies(direction: Direction, key: int) -> Iterator[tuple[int, dict[str, Any], tuple[ErrorCode, ...]]]:
    """Generated ones of all versions, whole and cut, with what enriching may add."""
    api = dissectors.api(key)
    assert api is not None
    for version in api.versions:
        schema = api.request(version) if direction == "request" else api.response(version)
        for seed, choices in enumerate(
            ({}, {"nulls": False}, {"count": 1, "nulls": False}, {"count": 4}, {"count": 0})
        ):
            rng = random.Random(f"{key} {version} {seed}")
            raw, _ = Encoder(Plan(rng, **choices)).body(schema.root)  # type: ignore[arg-type]
            for data in (raw, raw[: len(raw) // 2]):
                context = DecodeContext(DecodeOptions())
                body = schema.read(data, 0, len(data), context).body
                assert body is not None
                if rng.random() < 0.7:
                    clear(body)
                if rng.random() < 0.5:
                    name(body, rng)
                yield version, body, tuple(context.errors)[: rng.choice([0, 0, 2])]


def structs(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from structs(one)


def clear(body: dict[str, Any]) -> None:
    """Without errors, throttling, transactions and replicas, as nearly all are."""
    for one in structs(body):
        for field, usually in (("error_code", 0), ("throttle_time_ms", 0), ("replica_id", -1), ("controller_id", 1)):
            if field in one:
                one[field] = usually
        for field in ("transactional_id", "group_instance_id"):
            if field in one:
                one[field] = None
        for field in ("forgotten_topics_data", "replica_state"):
            one.pop(field, None)
        if "records" in one:
            one["records"] = {"batches": [dict(BATCH)], "truncated_bytes": 0}


def name(body: dict[str, Any], rng: random.Random) -> None:
    if "session_epoch" in body:
        body["_session"] = {"partitions": rng.randrange(3)}
    for one in structs(body):
        if "topic_id" in one and "name" not in one:
            one["_topic_name"] = rng.choice(["orders", "__consumer_offsets", "a b"])


def odd(body: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A copy in which one field is missing, odd, or there several times."""
    body = copy.deepcopy(body)
    place = rng.choice([one for one in structs(body) if one] or [{"none": 0}])
    field = rng.choice(list(place))
    match rng.randrange(3):
        case 0:
            del place[field]
        case 1 if isinstance(place[field], list):
            place[field] = place[field] * rng.choice([2, SHOWN, SHOWN + 1])
        case _:
            place[field] = copy.deepcopy(rng.choice(ODD.get(type(place[field]), [None])))
    return body


@pytest.mark.parametrize(("direction", "key"), USUAL)
def test_both_ways_tell_the_same(direction: Direction, key: int) -> None:
    rng = random.Random(key)
    taken: Counter[bool] = Counter()
    for version, body, errors in bodies(direction, key):
        fields = {"api_key": key, "api_version": version, "errors": errors}
        for one in (body, *(odd(body, rng) for _ in range(6))):
            told = message(direction, **fields, body=one)
            taken[is_short(told)] += 1
            assert outcome(summary, told) == outcome(full_summary, told), one
    # Neither way is tested in vain.
    assert min(taken[True], taken[False]) > 20


def test_the_usual_takes_the_short_way() -> None:
    assert is_short(message())
    assert is_short(message("response"))
    wide = copy.deepcopy(PRODUCE)
    wide["topic_data"][0]["partition_data"] *= SHOWN + 2
    assert is_short(message(body=wide))
    assert summary(message(body=wide), COLOUR) == (
        "orders-0 12 records 3.1 kB lz4; orders-0 12 records 3.1 kB lz4; orders-0 12 records 3.1 kB lz4; "
        "+2 partitions, acks all"
    )


def test_errors_and_throttling_are_told_the_long_way() -> None:
    body = {**PRODUCED, "throttle_time_ms": 7}
    assert summary(message("response", body=body), COLOUR).endswith("throttled 7 ms\x1b[0m")
    error = ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", "responses[0].partition_responses[0].error_code")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in summary(message("response", errors=(error,)), COLOUR)


@pytest.mark.parametrize("capture", ["librdkafka-group-classic.pcap", "franz-go.pcap", "java-transactions.pcap"])
def test_both_ways_tell_the_same_of_real_traffic(capture: str) -> None:
    found = [one for one in of_capture(CAPTURES / capture, records="batches") if isinstance(one, Message)]
    assert [summary(one, COLOUR) for one in found] == [full_summary(one, COLOUR) for one in found]
    assert any(is_short(one) for one in found)
