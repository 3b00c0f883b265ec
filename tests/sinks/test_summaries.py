"""Summaries of messages, from bodies in `summaries.txt`; `test_templates.py` has the language of the templates."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.model import ErrorCode
from kafkasniff.sinks.summaries import summary
from kafkasniff.sinks.summaries.phrases import amount, count, few, named_partitions, rate
from kafkasniff.sinks.tree import body_tree
from kafkasniff.text.printable import PLAIN
from tests.choice import fewer
from tests.kafka.encode import Encoder, Plan
from tests.sinks.messages import BATCH, message


def decoded(value: dict[str, Any]) -> Any:
    """`$batches` differ from `BATCH` as listed, `$bytes` is a number of bytes."""
    if "$bytes" in value:
        return bytes(value["$bytes"])
    if "$batches" in value:
        batches = [{**BATCH, **batch} for batch in value.pop("$batches")]
        return {"truncated_bytes": 0, **value, "batches": batches}
    return value


def cases() -> Iterator[tuple[str, str]]:
    """Each case of the file: its first line, and those below it."""
    first, below = "", ""
    for line in (Path(__file__).parent / "summaries.txt").read_text().splitlines():
        if line.startswith(" "):
            below += line.strip() + "\n"
            continue
        if first:
            yield first, below
        first, below = line, ""
    yield first, below


def test_summaries() -> None:
    """A line has the API (version 0 unless it says another), the side and the body; errors and the summary follow."""
    seen = 0
    for first, below in cases():
        head, _, body = first.partition(" {")
        name, *version, kind = head.split()
        *errors, expected = below.splitlines() or [""]
        codes = [line.split() for line in errors]
        api = dissectors.api_by_name(name)
        assert api is not None, name
        one = message(
            kind,
            api_key=api.key,
            api_version=int(version[0][1:]) if version else 0,
            body=json.loads("{" + body, object_hook=decoded),
            errors=tuple(ErrorCode(int(code), None if named == "-" else named, path) for _, code, named, path in codes),
        )
        assert summary(one, PLAIN) == expected, first
        seen += 1
    assert seen > 110


def test_a_body_that_was_not_decoded_has_no_summary() -> None:
    assert summary(message(body=None), PLAIN) == ""
    assert summary(message("response", api_key=None, body={}), PLAIN) == ""


def test_amounts_counts_and_lists() -> None:
    assert [amount(size) for size in (0, 999, 1000, 3112, 9949, 9951, 999_499, 999_500, 10**9, 10**13)] == [
        "0 B", "999 B", "1.0 kB", "3.1 kB", "9.9 kB", "10 kB", "999 kB", "1.0 MB", "1.0 GB", "10.0 TB",
    ]  # fmt: skip
    assert [rate(*one) for one in ((0.251, 12.4), (42.42, 4200), (1234.5, 123_450))] == [
        "0.25/s (12 B/s)", "42.4/s (4.2 kB/s)", "1,234/s (123 kB/s)",
    ]  # fmt: skip
    assert count(1, "record") == "1 record"
    assert count(0, "record") == "0 records"
    assert few(["a", "b", "c", "d"]) == "a, b, c, +1 more"
    topics = [{"name": name, "partitions": list(range(8))} for name in "abcd"]
    assert named_partitions(topics) == (
        "a-0,1,2,3,4,5,+2 more, b-0,1,2,3,4,5,+2 more, c-0,1,2,3,4,5,+2 more, +8 partitions"
    )


def pairs() -> list[tuple[int, int, str]]:
    found = []
    for key in dissectors.api_keys():
        api = dissectors.api(key)
        assert api is not None
        found += [(key, version, kind) for version in api.versions for kind in ("request", "response")]
    return found


def test_every_api_in_every_version_has_a_line_and_a_tree_whatever_its_fields_hold() -> None:
    reported = set()
    for key, version, kind in pairs():
        api = dissectors.api(key)
        assert api is not None
        schema = api.request(version) if kind == "request" else api.response(version)
        ways = ({"count": 2, "nulls": False, "tagged": True}, {}, {"nulls": True}, {"count": 0})
        for seed, choices in enumerate(ways[: fewer(1, 4)]):
            raw = Encoder(Plan(random.Random(f"{key} {version} {seed}"), **choices)).body(schema.root)
            for show_secrets in (False, True):
                # Whole, and cut in the middle: what is left of a body then may end anywhere.
                for data in (raw, raw[: len(raw) // 2]):
                    context = DecodeContext(DecodeOptions(show_secrets=show_secrets))
                    body = schema.read(data, 0, len(data), context).body
                    one = message(kind, api_key=key, api=api.name, api_version=version, body=body,
                                  errors=tuple(context.errors))  # fmt: skip
                    line = summary(one, PLAIN)
                    assert line.isprintable()
                    assert all(text.isprintable() for text in body_tree(one, PLAIN, records=True, width=80))
                    if line not in ("", "ok"):
                        reported.add((key, kind))
    # Every request has a summary in some version, except for the few without content.
    silent = {dissectors.api(key).name for key in dissectors.api_keys() if (key, "request") not in reported}  # type: ignore[union-attr]
    assert silent <= {"ListConfigResources", "DescribeClientQuotas"}
