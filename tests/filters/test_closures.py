"""Laws of compiled expressions on real exchanges: complement, and early decisions are final."""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import kafkasniff
from kafkasniff.filters import And, Candidate, Compare, Not, Or, Selector, compiled
from kafkasniff.filters.expression import parse_filter
from kafkasniff.filters.fields import LATE
from kafkasniff.model import ErrorCode, Exchange, Message, Problem, SaslToken
from tests.conftest import ROOT
from tests.filters.expressions import ANSWERED, ATOMS, ORPHAN, REFUSED, UNANSWERED, ask_of, exchange, expressions, holds
from tests.sinks.messages import BROKER, CLIENT, PRODUCE, TIME_NS, message

CAPTURES = (
    *("java-errors.pcap", "java-transactions.pcap", "java-group-consumer.pcap", "java-sasl.pcap", "java-0.9.pcap"),
    "kafka-python-admin.pcap",
)


@functools.cache
def real_exchanges() -> tuple[Exchange, ...]:
    found: list[Exchange] = []
    for name in CAPTURES:
        found.extend(list(kafkasniff.read(ROOT / "captures" / name))[::7])
    return (ANSWERED, REFUSED, UNANSWERED, ORPHAN, *found)


def atoms_hold_for_every_exchange(expression: str) -> tuple[int, int]:
    """Number of exchanges for which an expression and its negation hold. Checks that early decisions are final."""
    tree = parse_filter(expression)
    test, complement = compiled(tree), compiled(parse_filter(f"not ({expression})"))
    counts = [0, 0]
    for of in real_exchanges():
        start = {"start_ns": TIME_NS - 5_000_000}
        ended = Candidate(request=of.request, response=of.response, ended=of, **start)
        answer = test(ended)
        assert answer is not None
        assert complement(ended) is not answer
        counts[not answer] += 1
        if of.request is not None:
            early = test(Candidate(request=of.request, unknown=LATE, **start))
            assert early in (None, answer), (expression, of)
    return counts[0], counts[1]


def test_each_comparison() -> None:
    for atom in ATOMS:
        held, failed = atoms_hold_for_every_exchange(atom)
        assert held + failed == len(real_exchanges())


@given(expressions())
def test_not_is_the_complement_and_the_request_decides_for_good(expression: str) -> None:
    atoms_hold_for_every_exchange(expression)


def test_only_the_start_of_a_long_value_is_searched() -> None:
    body = {**PRODUCE, "transactional_id": "a" * (1 << 16) + "b"}
    of = exchange(message(body=body), None)
    assert holds('request.transactional_id =~ "a$"', of) is True
    assert holds('request.transactional_id =~ "b"', of) is False


ERROR = ErrorCode(6, "NOT_LEADER_OR_FOLLOWER", "responses[0].partition_responses[0].error_code")


def parts_of_exchange(number: int, **fields: Any) -> tuple[Message, Message, Exchange]:
    errors = fields.pop("errors", ())
    request = message(exchange=number, **fields)
    response = message("response", exchange=number, errors=errors, **fields)
    return request, response, Exchange(number, 3, "answered", request, response)


def test_an_exchange_without_a_response_or_a_request() -> None:
    request, response, _ = parts_of_exchange(1)
    unanswered = Exchange(1, 3, "unanswered", request, None)
    assert Selector(Not(Compare("error", "!=", 0))).feed([request, unanswered]) == [request, unanswered]
    orphan = Exchange(2, 3, "orphan", None, response)
    assert Selector(Compare("connection", "==", 3)).feed([response, orphan]) == [response, orphan]


def test_when_an_exchange_is_shown() -> None:
    """At once if its request decides, else with both sides at its end."""
    for expression, shown in (
        ('api == "Produce" and acks == "all" and not client_id == "x"', (1, 1, 1)),
        ("api == 0 and latency_ms > 1ms", (0, 0, 3)),
        ('client_id == "other"', (0, 0, 0)),
    ):
        selector = Selector(parse_filter(expression))
        assert tuple(len(selector.feed([event])) for event in parts_of_exchange(1)) == shown
        assert selector._decided == {}
    # If it is false already, the response is not needed.
    never = Selector(parse_filter("api == 1 and latency_ms > 1ms"))
    assert never.feed([parts_of_exchange(1)[0]]) == []
    assert never._decided == {1: False}


@given(st.data())
def test_both_sides_of_an_exchange_share_one_answer_in_any_interleaving(data: st.DataObject) -> None:
    ids = ["a", "b"]
    exchanges = [
        parts_of_exchange(
            number, client_id=data.draw(st.sampled_from(ids)), errors=data.draw(st.sampled_from([(), (ERROR,)]))
        )
        for number in range(5)
    ]
    order = data.draw(st.permutations([number for number in range(5) for _ in range(3)]))
    events = []
    seen = dict.fromkeys(range(5), 0)
    for number in order:
        events.append(exchanges[number][seen[number]])
        seen[number] += 1
    predicate = data.draw(
        st.sampled_from(
            [
                Compare("client_id", "==", "a"),
                Compare("error", "!=", 0),
                And((Compare("client_id", "==", "a"), Compare("error", "!=", 0))),
                Or((Compare("client_id", "==", "a"), Compare("error", "!=", 0))),
                Not(Compare("error", "!=", 0)),
            ]
        )
    )
    selector = Selector(predicate)
    cut = data.draw(st.integers(0, len(events)))
    out = selector.feed(events[:cut]) + selector.feed(events[cut:])
    for request, response, end in exchanges:
        wanted = ask_of(predicate, request, response)
        shown = [event for event in out if event in (request, response, end)]
        assert shown == ([request, response, end] if wanted else [])
    assert selector._decided == {}


def test_tokens_and_problems() -> None:
    token = SaslToken("request", 17, "PLAIN", None, 3, "a.pcap", TIME_NS, CLIENT, BROKER, 9)
    here, elsewhere = Problem("tcp-gap", "x", connection=3), Problem("tcp-gap", "x", connection=4)
    capture = Problem("capture-cut", "x")
    by_connection = Selector(Compare("connection", "==", 3))
    assert by_connection.feed([token, here, elsewhere, capture]) == [token, here, capture]
    by_host = Selector(Compare("host", "==", "10.0.0.5"))
    assert by_host.feed([token, here]) == [token, here]
    assert Selector(Compare("problems", "==", "tcp-gap")).feed([here, capture]) == [here]
    assert Selector(None).feed([token, here]) == [token, here]
    # A token has no API; a problem may have cost messages of any API.
    by_api = Selector(Compare("api", "==", 0))
    assert by_api.feed([token, here]) == [here]
    assert Selector(Compare("time", ">", TIME_NS)).feed([Problem("x", "y", time_ns=TIME_NS), capture]) == [capture]


def test_problems_of_an_exchange_follow_its_selection() -> None:
    request, _, _ = parts_of_exchange(1)
    end = Exchange(1, 3, "unanswered", request, None)
    problem = Problem("request-unanswered", "exchange 1: …", connection=3, exchange=1)
    for wanted in (Compare("api", "==", 0), Compare("topic", "==", "orders"), Compare("exchange", "==", 1)):
        assert Selector(wanted).feed([request, end, problem]) == [request, end, problem]
    for other in (Compare("api", "==", 1), Compare("topic", "==", "x"), Compare("error", "!=", 0)):
        assert Selector(other).feed([request, end, problem]) == []
    # If its exchange did not just end, the known fields of the problem decide.
    assert Selector(Compare("exchange", "==", 2)).feed([problem]) == []
    assert Selector(Compare("api", "==", 1)).feed([problem]) == [problem]


OPEN = LATE


def test_topics_of_either_message_count() -> None:
    everything = message(api_key=3, api="Metadata", api_version=1, body={"topics": None})
    body = {"brokers": [], "topics": [{"error_code": 0, "name": "orders", "partitions": []}]}
    answer = message("response", api_key=3, api="Metadata", api_version=1, body=body)
    wanted = Compare("topic", "==", "orders")
    assert ask_of(wanted, everything, unknown=OPEN) is None
    assert ask_of(wanted, everything, answer) is True
    # A request that names it suffices; one that names another topic may still be answered with it.
    assert ask_of(wanted, message(), unknown=OPEN) is True


def test_topics_named_by_their_ids() -> None:
    topic = {"topic_id": "3hvnHBaqQU2Y6pOqkwEIng", "_topic_name": "orders", "partitions": []}
    request = message(api_key=1, api="Fetch", api_version=13, body={"topics": [topic]})
    assert ask_of(Compare("topic", "glob", "ord*"), request) is True
    request = message(api_key=1, api="Fetch", api_version=13, body={"topics": []}, session_topics=("orders",))
    assert ask_of(Compare("topic", "==", "orders"), request) is True
    assert ask_of(Compare("topic", "==", "payments"), request, unknown=OPEN) is None, "the response may name it"
