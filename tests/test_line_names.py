"""Topic ids and fetch sessions in lines that the kernel writes: the same names as added by the enricher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.engine import lines_ahead, session_follower
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.enrich.plan import message_plan
from kafkasniff.kafka.apis import entities
from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.connection.events import Level
from kafkasniff.kafka.schema.codes import uuid_bytes, uuid_text
from kafkasniff.kafka.schema.definition import Struct, topic_fields
from kafkasniff.native import names
from tests.choice import examples
from tests.craft import kafka_bytes as kafka
from tests.engine.shown import Shown, shown, threads_of
from tests.engine.talks import RECORDS, USUAL, Say, exchange_of, packets_of, talks
from tests.oracle.inspector import ByPython

A, B, C, OWN = (bytes([number]) * 16 for number in (1, 2, 3, 4))
GIVEN = bytes([5]) * 16
LOG = uuid_bytes(entities.METADATA_TOPIC_ID)
NAMED = {A: "orders", B: "pay ments", C: "größe", OWN: "__consumer_offsets"}


def _metadata(*topics: tuple[bytes, str | None], asks: tuple[bytes, str | None] = (kafka.NO_ID, None)) -> Say:
    return exchange_of(
        lambda n: kafka.metadata_request_by_id(n, [asks]), lambda n: kafka.metadata_response_with_ids(n, topics)
    )


def _fetch(*topics: bytes, partitions: Sequence[int] = (0,), forgotten: Sequence[bytes] = (), **session: Any) -> Say:
    answer = {"session": session.get("opened", session["session"][0]), "error": session.get("error", 0)}
    return exchange_of(
        lambda n: kafka.fetch_request_by_id(
            n,
            [(topic, partitions) for topic in topics],
            session=session["session"],
            forgotten=[(topic, [0]) for topic in forgotten],
        ),
        lambda n: kafka.fetch_response_by_id(n, [(topic, 0, RECORDS) for topic in topics], **answer),
    )


WORDS: dict[str, Say] = {
    **USUAL,
    **{f"teaches {name}": _metadata((topic_id, name)) for topic_id, name in NAMED.items()},
    "teaches all": _metadata(*NAMED.items()),
    "teaches another": _metadata((A, "payments"), (kafka.NO_ID, "zero")),
    "teaches what was given": _metadata((GIVEN, "taught")),
    "teaches no name": _metadata((A, None), (GIVEN, "")),
    "teaches a long name": _metadata((B, "n" * 256)),
    "asks by id": _metadata(asks=(B, None)),
    "asks by both": _metadata(asks=(B, "not given")),
    "asks by both of what is given": _metadata((GIVEN, None), asks=(GIVEN, None)),
    **{
        f"fetches {name}": _fetch(*topics, session=(0, -1))
        for name, topics in {
            "a": [A],
            "all": [A, B, C, GIVEN],
            "none": [],
            "own": [OWN],
            "zero": [kafka.NO_ID],
            "log": [LOG],
        }.items()
    },
    "fetches many": _fetch(*(bytes([9, number]) * 8 for number in range(40)), session=(0, -1)),
    **{f"opens {number}": _fetch(A, B, session=(0, 0), opened=number) for number in (7, 8)},
    "opens again": _fetch(A, C, session=(7, 0), opened=8),
    "opens nothing": _fetch(A, session=(0, 0), opened=0),
    **{f"continues {number}": _fetch(session=(number, 3)) for number in (7, 8)},
    "repeats in 7": _fetch(A, B, session=(7, 3)),
    "repeats another partition in 7": _fetch(A, partitions=(1,), session=(7, 3)),
    "continues, and 7 becomes 8": _fetch(session=(7, 3), opened=8),
    **{f"adds to {number}": _fetch(A, C, partitions=(0, 1), session=(number, 4)) for number in (7, 8)},
    "adds many": _fetch(*(bytes([9, number]) * 8 for number in range(120)), session=(7, 5)),
    "forgets": _fetch(B, forgotten=[A, C], session=(7, 6)),
    "is refused": _fetch(session=(7, 9), opened=0, error=71),
    "is left empty": _fetch(forgotten=[A, B, C], session=(7, 9), opened=0),
    "closes": _fetch(session=(7, -1), opened=0),
}


def _run(kind: type[Inspector], case: Case, batches: list[Any], threads: int | None = None) -> tuple[Shown, Any]:
    """Lines and sessions, the least recently used first, with their partitions and the requests that wait."""
    enricher = Enricher(Catalog({uuid_text(GIVEN): "given"}))
    sessions = enricher.sessions
    if case.small:
        enricher.catalog.most_topics = 2
        sessions._most_sessions, sessions._most_partitions = 1, 60
    found = shown(kind, case.form, batches, case.levels, enricher, threads, expression=case.expression)
    held = [(key, one.topics, one.by_id) for key, one in sessions._sessions.items()]
    return found, (held, [(exchange, key) for exchange, (key, _) in sessions._pending.items()], sessions.let_go)


_OF_SESSIONS = [word for word in WORDS if any(character in word for character in "78")]
_OF_SESSIONS += ["forgets", "is refused", "is left empty", "closes", "adds many"] * 2
_REPEATS = [["opens 7", *["repeats in 7", "continues 7"] * 9, "is refused"] * 2] * 3
USUAL_BOUNDS = (1024, 1 << 18, 1 << 10)
FILTERS = [None, 'topic == "orders"', 'topic != "pay ments"', "partition == 1", 'topic == "given" or error == 71']


class Case(NamedTuple):
    """A conversation for each connection, where batches are cut, the bounds, and what is wanted."""

    said: list[list[str]]
    form: str
    cuts: Sequence[int] = ()
    small: bool = False
    bounds: tuple[int, int, int] = USUAL_BOUNDS
    """Places of names at first and at most, bytes of the lists of requests whose effect is kept."""
    threads: int | None = None
    levels: Sequence[Level] = ()
    expression: str | None = None


def conversations(words: Sequence[str], longest: int) -> st.SearchStrategy[list[list[str]]]:
    return st.lists(st.lists(st.sampled_from(words), max_size=longest), min_size=1, max_size=4)


@given(
    case=st.builds(
        Case,
        said=conversations(sorted(WORDS), 16) | conversations(_OF_SESSIONS, 40),
        form=st.sampled_from(["text", "tree", "json"]),
        cuts=st.lists(st.integers(0, 100), max_size=5),
        small=st.booleans(),
        bounds=st.sampled_from([USUAL_BOUNDS, (8, 16, 40), (8, 256, 0)]),
        threads=st.sampled_from([None, 1, 2]),
        levels=st.just([]) | st.lists(st.sampled_from(list(Level)), max_size=6),
        expression=st.sampled_from(FILTERS),
    )
)
@examples(25)
@example(case=Case([list(WORDS), ["fetches all"] * len(WORDS)], "json", bounds=(8, 16, 1 << 10), threads=1))
@example(case=Case([list(WORDS), ["fetches all"] * len(WORDS)], "text", bounds=(8, 16, 1 << 10)))
@example(case=Case([["opens 7", "adds many"]], "json", small=True))
@example(case=Case([["opens 7", "opens 8"], [], ["adds to 7"] * 9], "json", small=True, bounds=(8, 256, 1 << 10)))
@example(case=Case([list(WORDS)] * 3, "json", cuts=range(8, 100, 8), small=True, bounds=(8, 256, 1 << 10), threads=2))
@example(case=Case(_REPEATS, "text", bounds=(1024, 1 << 18, 40)))
@example(case=Case(_REPEATS, "json"))
@example(case=Case([["continues 7"] * 9, ["opens 7"], ["continues 7"] * 9], "text", cuts=[40]))
@example(case=Case([["opens 7", "opens 8", *["continues 7", "continues 8", "forgets"] * 9]], "json", small=True))
@example(case=Case([list(WORDS)] * 3, "text", cuts=[20, 50], expression=FILTERS[1]))
@example(case=Case([["opens 7", *WORDS], ["fetches all"] * 40], "json", cuts=[35], expression=FILTERS[2]))
@example(case=Case([list(WORDS)] * 3, "json", cuts=[20, 35, 50, 65, 80], levels=[Level(0), Level(2), Level(1)]))
@example(case=Case([list(WORDS)] * 3, "text", cuts=[20, 35, 50, 65, 80], levels=[Level(0), Level(3), Level(1)]))
def test_the_same_as_one_by_one(case: Case) -> None:
    """Where bodies are skipped, they teach no name and change no session."""
    batches = packets_of(talks(case.said, words=WORDS), list(case.cuts))
    threads = None if case.levels else threads_of(case.form, case.threads)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(names, "FIRST_PLACES", case.bounds[0])
        patched.setattr(names, "MAX_PLACES", case.bounds[1])
        patched.setattr(session_follower, "MAX_LIST", case.bounds[2])
        patched.setattr(session_follower, "MAX_KEPT", 2)
        patched.setattr(lines_ahead, "TASK_BYTES", 700)
        found, sessions = _run(Inspector, case, batches, threads)
    expected, theirs = _run(ByPython, case, batches)
    assert found.out.getvalue().splitlines() == expected.out.getvalue().splitlines()
    assert (found.summary, found.left_out, sessions) == (expected.summary, expected.left_out, theirs)


def _structs(struct: Struct) -> list[Struct]:
    inner = [field.struct for field in (*struct.fields, *struct.tagged) if field.struct is not None]
    return [struct, *(found for one in inner for found in _structs(one))]


def test_names_are_beside_ids() -> None:
    """The kernel relies on it: a topic's name is next to its id, and neither is in a tag section."""
    with_both = 0
    for key in api_keys():
        found = api(key)
        for version in found.versions:
            for direction, schema in (("request", found.request(version)), ("response", found.response(version))):
                for struct in _structs(schema.root):
                    topic, topic_id = topic_fields((*struct.fields, *struct.tagged))
                    if topic_id is None:
                        continue
                    assert message_plan(key, version, direction) is not None  # type: ignore[arg-type]
                    places = [field.name for field in struct.fields]
                    assert topic_id in places
                    if topic is not None:
                        with_both += 1
                        assert abs(places.index(topic) - places.index(topic_id)) == 1
    assert with_both > 20
