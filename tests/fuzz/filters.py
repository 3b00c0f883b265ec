"""The language of `--filter`: invalid text raises UsageError alone; a tree can be pickled, and answers True, False or
None, its negation the opposite. Patterns do not run: a user's may take any time."""

from __future__ import annotations

import functools
import pickle
import re
from typing import Final

from kafkasniff.engine.inspector import Inspector
from kafkasniff.errors import UsageError
from kafkasniff.filters import Candidate, Not, compiled, fields_of, needs_records, needs_topic_names
from kafkasniff.filters.expression import parse_filter
from kafkasniff.filters.fields import ALL
from kafkasniff.model import Exchange
from tests.conftest import ROOT
from tests.craft.batches import batch
from tests.craft.samples import consumer, producer

MAX_LENGTH = 600
MEGABYTES = 128
WORDS = tuple(
    word.encode()
    for word in (
        *(" and ", " or ", "not ", "has ", " in (", "not in", "==", "!=", "<=", ">=", "=~", "!~", "null", "true"),
        *("10ms", "1.5s", "4kB", "1MiB", "2026-11-21T04:00:00Z", '"04:00:00"', '"+10s"', "\\x41", "\\u0041"),
        *("request.topic_data.name", "response.responses.error_code", "request._x", "99999999999999999999999999"),
        *sorted(ALL),
    )
)

_EXPRESSION: Final = re.compile(r"--filter ('[^']+'|\"[^\"]+\")")


@functools.cache
def _candidates() -> tuple[Candidate, ...]:
    inspector = Inspector()
    events = inspector.feed(batch([*producer().packets, *consumer().packets])) + inspector.close()
    exchanges = [event for event in events if isinstance(event, Exchange)][:6]
    assert exchanges
    found = [Candidate(request=one.request, response=one.response, ended=one, start_ns=5) for one in exchanges]
    asked = [Candidate(request=one.request, unknown=frozenset(ALL)) for one in exchanges if one.request is not None]
    return (*found, *asked, Candidate())


def one_input(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    try:
        tree = parse_filter(text)
    except UsageError:
        return
    assert pickle.loads(pickle.dumps(tree)) == tree
    fields_of(tree)
    needs_records(tree)
    needs_topic_names(tree)
    test, opposite = compiled(tree), compiled(Not(tree))
    if "=~" in text or "!~" in text:
        return
    for candidate in _candidates():
        answer = test(candidate)
        assert answer is None or isinstance(answer, bool)
        assert opposite(candidate) == (None if answer is None else not answer)


def seeds() -> list[bytes]:
    found = [b'api == "Fetch" and latency_ms > 100 or not (topic in ("a", "b"))', b"has error", b"status != null"]
    for path in (ROOT / "README.md", ROOT / "docs" / "filters.md"):
        found += [match[1][1:-1].encode() for match in _EXPRESSION.finditer(path.read_text())]
    found += [f"{field} == 1".encode() for field in sorted(ALL)]
    found += [f'{field} =~ "^a"'.encode() for field in sorted(ALL)[::4]]
    return found
