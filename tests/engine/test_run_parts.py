"""Counts of the parts of a run add up to those of the run."""

from __future__ import annotations

from pathlib import Path

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.run_parts import add_problems, begin_part, comparable_connections, open_problems
from kafkasniff.model import Connection, Exchange, Summary
from kafkasniff.tables.checkpoint import dump, load

CAPTURES = Path(__file__).parents[2] / "captures"
CAPTURE = CAPTURES / "java-2.4.pcap"


def inspected(*, anew: bool, size: int = 40) -> tuple[Inspector, Summary, dict[int, int]]:
    """The inspector, its summary, and problems by connection; `anew`: each `size` packets are a part."""
    inspector = Inspector(connections=True)
    total, before = Summary(), dict[int, int]()
    problems: dict[int, int] = {}

    def take(events: list[object]) -> None:
        for event in events:
            if isinstance(event, Connection):
                problems[event.connection_id] = event.problems + before.pop(event.connection_id, 0)

    with open_captures([str(CAPTURE)]) as source:
        for batch in source:
            rest = batch
            while len(rest):
                part, rest = rest.split(min(size, len(rest)))
                take(inspector.feed(part))
                if anew:
                    for one, count in open_problems(inspector.state).items():
                        before[one] = before.get(one, 0) + count
                    total.add(inspector.summary)
                    begun = begin_part(inspector.state)
                    assert begun is inspector.summary
                    assert open_problems(inspector.state) == {}
    copy = load(dump(inspector), Inspector)
    take(inspector.close())
    total.add(inspector.summary)
    add_problems(copy.state, before)
    return copy, total, problems


def test_parts_add_up() -> None:
    whole, summary, problems = inspected(anew=False)
    copy, total, counted = inspected(anew=True)
    assert total == summary
    assert counted == problems
    assert sum(problems.values()) > 0
    assert open_problems(copy.state) == open_problems(whole.state)


def test_connections_that_are_over_keep_no_problems() -> None:
    """Their `Connection` has them; they stay for a while, for packets that are late."""
    inspector = Inspector(connections=True)
    over: dict[int, int] = {}
    with open_captures([str(CAPTURE)]) as source:
        for batch in source:
            events = inspector.feed(batch)
            over |= {one.connection_id: one.problems for one in events if isinstance(one, Connection)}
    assert any(over.values())
    assert not over.keys() & open_problems(inspector.state).keys()


def test_open_exchanges_are_numbered_anew() -> None:
    inspector = Inspector(connections=True)
    inspector.number_from(1000)
    with open_captures([str(CAPTURE)]) as source:
        for batch in source:
            inspector.feed(batch.split(len(batch) // 2)[0])
            break
    connections, numbers = comparable_connections(load(dump(inspector), Inspector).state)
    opened = [event for event in inspector.close() if isinstance(event, Exchange)]
    assert sorted(numbers.values()) == list(range(1, len(numbers) + 1))
    assert min(numbers) > 1000
    assert set(numbers) == {one.exchange for one in opened}
    assert [tcp.owner.number for tcp in connections] == list(range(len(connections)))  # type: ignore[attr-defined]
    assert [tcp.first_order for tcp in connections] == sorted(tcp.first_order for tcp in connections)
