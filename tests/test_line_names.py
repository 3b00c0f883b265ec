"""Topic ids and fetch sessions in lines that the kernel writes: the same names as added by the enricher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff.engine import lines_ahead
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.enrich.plan import message_plan
from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.connection.detail import Level
from kafkasniff.kafka.schema.layout import Struct, topic_fields
from kafkasniff.kafka.schema.uuids import uuid_text
from kafkasniff.native import kernel, names
from kafkasniff.native import sessions as native_sessions
from kafkasniff.sinks.native_names import AddedNames
from tests.craft import kafka_bytes as kafka
from tests.engine.test_in_step import RECORDS, USUAL, Say, _exchange, talks
from tests.engine.test_line_runs import Shown, packets_of, shown, threads_of
from tests.native.one_by_one import OneByOne

pytestmark = pytest.mark.skipif(kernel() is None, reason="no native kernel here")

A, B, C, OWN = (bytes([number]) * 16 for number in (1, 2, 3, 4))
GIVEN = bytes([5]) * 16
NAMED = {A: "orders", B: "pay ments", C: "größe", OWN: "__consumer_offsets"}


def _metadata(*topics: tuple[bytes, str | None], asks: tuple[bytes, str | None] = (kafka.NO_ID, None)) -> Say:
    return _exchange(
        lambda n: kafka.metadata_request_by_id(n, [asks]), lambda n: kafka.metadata_response_with_ids(n, topics)
    )


def _fetch(*topics: bytes, partitions: Sequence[int] = (0,), forgotten: Sequence[bytes] = (), **session: Any) -> Say:
    answer = {"session": session.get("opened", session["session"][0]), "error": session.get("error", 0)}
    return _exchange(
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
        for name, topics in {"a": [A], "all": [A, B, C, GIVEN], "none": [], "own": [OWN], "zero": [kafka.NO_ID]}.items()
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


def _lines(
    kind: type[Inspector],
    form: str,
    batches: list[Any],
    *,
    small: bool,
    levels: Sequence[Level] = (),
    threads: int | None = None,
) -> Shown:
    return _lines_and_sessions(kind, form, batches, small=small, levels=levels, threads=threads)[0]


def _lines_and_sessions(
    kind: type[Inspector],
    form: str,
    batches: list[Any],
    *,
    small: bool,
    levels: Sequence[Level] = (),
    threads: int | None = None,
) -> tuple[Shown, Any]:
    """The sessions: with their partitions, the least recently used first, and the requests that wait for a response."""
    enricher = Enricher(Catalog({uuid_text(GIVEN): "given"}))
    if small:
        enricher.catalog.most_topics = 2
        assert enricher._sessions is not None
        enricher._sessions._most_sessions, enricher._sessions._most_partitions = 1, 60
    found = shown(kind, form, batches, levels, enricher, threads)
    sessions = enricher.sessions
    assert sessions is not None
    held = [(key, one.topics, one.by_id) for key, one in sessions._sessions.items()]
    return found, (held, [(exchange, key) for exchange, (key, _) in sessions._pending.items()], sessions.let_go)


@given(
    said=st.lists(st.lists(st.sampled_from(sorted(WORDS)), max_size=16), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 100), max_size=4),
    form=st.sampled_from(["text", "tree", "json"]),
    small=st.booleans(),
    places=st.sampled_from([(1024, 1 << 18), (8, 16), (8, 256)]),
    threads=st.sampled_from([None, 1, 2]),
)
@example(said=[list(WORDS), ["fetches all"] * len(WORDS)], cuts=[], form="json", small=False, places=(8, 16), threads=1)
@example(said=[list(WORDS), ["fetches all"] * len(WORDS)], cuts=[], form="text", small=False, places=(8, 16), threads=1)
@example(said=[["opens 7", "adds many"]], cuts=[], form="json", small=True, places=(1024, 1 << 18), threads=None)
@example(
    said=[["opens 7", "opens 8"], [], ["adds to 7"] * 9],
    cuts=[],
    form="json",
    small=True,
    places=(8, 256),
    threads=None,
)
@example(said=[list(WORDS)] * 3, cuts=[*range(8, 100, 8)], form="json", small=True, places=(8, 256), threads=2)
def test_the_same_as_one_by_one(  # noqa: PLR0917 - what hypothesis chooses
    said: list[list[str]], cuts: list[int], form: str, small: bool, places: tuple[int, int], threads: int | None
) -> None:
    batches = packets_of(talks(said, words=WORDS), cuts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(names, "FIRST_PLACES", places[0])
        patched.setattr(names, "MAX_PLACES", places[1])
        patched.setattr(lines_ahead, "TASK_BYTES", 700)
        found = _lines(Inspector, form, batches, small=small, threads=threads_of(form, threads))
    expected = _lines(OneByOne, form, batches, small=small)
    assert found.out.getvalue().splitlines() == expected.out.getvalue().splitlines()
    assert found.summary == expected.summary


_OF_SESSIONS = [
    *(word for word in WORDS if any(character in word for character in "78")),
    *("forgets", "is refused", "is left empty", "closes", "adds many"),
]


@given(
    said=st.lists(
        st.lists(
            st.sampled_from([*_OF_SESSIONS, "forgets", "is refused", "is left empty", "closes", "adds many"]),
            max_size=40,
        ),
        min_size=1,
        max_size=4,
    ),
    cuts=st.lists(st.integers(0, 100), max_size=4),
    small=st.booleans(),
    most=st.sampled_from([0, 200, 1 << 20]),
    form=st.sampled_from(["text", "tree", "json"]),
)
@example(
    said=[["opens 7", *["repeats in 7", "continues 7"] * 9, "is refused"] * 2] * 3,
    cuts=[],
    small=False,
    most=200,
    form="text",
)
@example(
    said=[["opens 7", *["repeats in 7", "continues 7"] * 9, "is refused"] * 2] * 3,
    cuts=[],
    small=False,
    most=1 << 20,
    form="json",
)
@example(
    said=[["continues 7"] * 9, ["opens 7"], ["continues 7"] * 9], cuts=[40], small=False, most=1 << 20, form="text"
)
@example(
    said=[[*["opens 7", "opens 8"], *["continues 7", "continues 8", "forgets"] * 9]],
    cuts=[],
    small=True,
    most=1 << 20,
    form="json",
)
def test_sessions_that_the_kernel_follows(
    said: list[list[str]], cuts: list[int], small: bool, most: int, form: str
) -> None:
    """Lines and sessions are those of Python; `most`: bytes of all sessions that the kernel knows."""
    batches = packets_of(talks(said, words=WORDS), cuts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(native_sessions, "MAX_SESSIONS", most)
        found, sessions = _lines_and_sessions(Inspector, form, batches, small=small)
    expected, theirs = _lines_and_sessions(OneByOne, form, batches, small=small)
    assert found.out.getvalue().splitlines() == expected.out.getvalue().splitlines()
    assert found.summary == expected.summary
    assert sessions == theirs


@pytest.mark.parametrize("form", ["text", "tree", "json"])
def test_most_requests_of_a_session_need_no_answer(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    session = AddedNames.session

    def count(self: AddedNames, index: int, first: int, second: int) -> Any:
        asked.append(index)
        return session(self, index, first, second)

    monkeypatch.setattr(AddedNames, "session", count)
    for begins, partitions in (["opens 7"], 2), ([], None):
        asked.clear()
        batches = packets_of(talks([[*begins, *["repeats in 7", "continues 7"] * 50]], words=WORDS), [60])
        found = _lines(Inspector, form, batches, small=False)
        assert found.native > 100
        # Those that Python reads before it is known that this is Kafka, and the first of the session.
        assert len(asked) < 20
        shown = {"text": "2 partitions", "tree": "    _session:\n      partitions: 2\n"}.get(
            form, '"_session":{"partitions":2}'
        )
        assert (found.out.getvalue().decode().count(shown) > 80) == (partitions is not None)


@given(
    said=st.lists(st.lists(st.sampled_from(sorted(WORDS)), max_size=16), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 100), max_size=6),
    levels=st.lists(st.sampled_from(list(Level)), min_size=1, max_size=6),
    form=st.sampled_from(["text", "tree", "json"]),
)
@example(said=[list(WORDS)] * 3, cuts=[20, 35, 50, 65, 80], levels=[Level(0), Level(2), Level(1)], form="json")
@example(said=[list(WORDS)] * 3, cuts=[20, 35, 50, 65, 80], levels=[Level(0), Level(3), Level(1)], form="text")
def test_names_where_bodies_are_skipped(said: list[list[str]], cuts: list[int], levels: list[Level], form: str) -> None:
    """Skipped bodies teach no name and change no session."""
    batches = packets_of(talks(said, words=WORDS), cuts)
    found, expected = (_lines(kind, form, batches, small=False, levels=levels) for kind in (Inspector, OneByOne))
    assert found.out.getvalue().splitlines() == expected.out.getvalue().splitlines()
    assert (found.summary, found.left_out) == (expected.summary, expected.left_out)


@pytest.mark.parametrize(("form", "threads"), [("text", None), ("json", None), ("json", 1)])
@pytest.mark.parametrize("cut", [None, 20, 37, 50, 81])
def test_the_kernel_makes_the_messages(form: str, cut: int | None, threads: int | None) -> None:
    """All except those that teach a name, begin a session, or change one by an error."""
    reported = ["teaches orders", "teaches pay ments"]
    said = [*reported, *["fetches a", *reported, "asks by id", "opens 7", "continues 7", "adds to 7"] * 4]
    batches = packets_of(talks([said] * 3, words=WORDS), [] if cut is None else [cut])
    found = _lines(Inspector, form, batches, small=False, threads=threads)
    text = found.out.getvalue().decode()
    # Messages before the end of the first batch show that it is Kafka, and two names are learned first.
    assert found.native >= (2 * 3 * len(said) - 3 * (2 * 4) - 2) * (1 if cut is None else 0.8)
    assert text.count('"_session":{"partitions":5}' if form == "json" else "5 partitions") >= 3 * 4
    assert "orders" in text


def _structs(struct: Struct) -> list[Struct]:
    inner = [field.struct for field in (*struct.fields, *struct.tagged) if field.struct is not None]
    return [struct, *(found for one in inner for found in _structs(one))]


def test_names_are_beside_ids() -> None:
    """The kernel relies on it: a topic's name is next to its id, and neither is in a tag section."""
    with_both = 0
    for key in api_keys():
        found = api(key)
        assert found is not None
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


def test_a_table_that_is_too_small_leaves_messages_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "FIRST_PLACES", 8)
    monkeypatch.setattr(names, "MAX_PLACES", 32)
    batches = packets_of(talks([["fetches many", "fetches a"] * 4], words=WORDS), [])
    for form in ("text", "json"):
        found = _lines(Inspector, form, batches, small=False)
        assert found.out.getvalue() == _lines(OneByOne, form, batches, small=False).out.getvalue()
        # Text shows some of many topics, and looks up only these.
        assert 8 <= found.native <= (14 if form == "json" else 18)
