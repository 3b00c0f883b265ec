from __future__ import annotations

import ipaddress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff import filters
from kafkasniff.errors import UsageError
from kafkasniff.filters import And, Candidate, Compare, Moment, Not, Or, Selector
from kafkasniff.filters.fields import LATE
from kafkasniff.model import Endpoint, ErrorCode, Exchange, Message, Problem, SaslToken
from tests.sinks.messages import BROKER, CLIENT, PRODUCE, PRODUCED, TIME_NS, message

ERROR = ErrorCode(6, "NOT_LEADER_OR_FOLLOWER", "responses[0].partition_responses[0].error_code")
OPEN = LATE


def ask(predicate: Any, request: Message | None = None, response: Message | None = None, **options: Any) -> Any:
    if request is None and response is None:
        request, response = message(), message("response")
    return filters.compiled(predicate)(Candidate(request=request, response=response, **options))


TRUE, FALSE = Compare("connection", "==", 3), Compare("connection", "==", 4)
UNKNOWN = Compare("latency_ms", ">", 0)


@pytest.mark.parametrize(
    ("predicate", "answer"),
    [
        (And((TRUE, TRUE)), True),
        (And((TRUE, UNKNOWN)), None),
        (And((UNKNOWN, FALSE)), False),
        (And(()), True),
        (Or((FALSE, FALSE)), False),
        (Or((FALSE, UNKNOWN)), None),
        (Or((UNKNOWN, TRUE)), True),
        (Or(()), False),
        (Not(TRUE), False),
        (Not(FALSE), True),
        (Not(UNKNOWN), None),
        (And((Not(Or((FALSE, UNKNOWN))), TRUE)), None),
    ],
)
def test_three_valued_logic(predicate: Any, answer: bool | None) -> None:
    assert ask(predicate, message(), unknown=OPEN) is answer


@pytest.mark.parametrize(
    ("predicate", "answer"),
    [
        (Compare("api", "==", 0), True),
        (Compare("api", "==", 1), False),
        (Compare("api_version", ">=", 9), True),
        (Compare("client_id", "==", "rdkafka"), True),
        (Compare("client_id", "glob", "rd*"), True),
        (Compare("host", "==", "10.0.0.9"), True),
        (Compare("host", "==", "10.0.0.90"), False),
        (Compare("host", "==", "10.0.0.5:51334"), True),
        (Compare("host", "==", "10.0.0.5:9092"), False),
        (Compare("correlation_id", "==", 5), True),
        (Compare("exchange", "==", 17), True),
        (Compare("time", ">=", TIME_NS), True),
        (Compare("time", "<", TIME_NS), False),
        (Compare("latency_ms", ">", 1_233_999), True),
        (Compare("latency_ms", ">", 1_234_000), False),
        (Compare("latency_ms", "<=", 1_234_000), True),
        (Compare("error", "!=", 0), False),
        (Compare("topic", "==", "orders"), True),
        (Compare("topic", "glob", "ord*"), True),
        (Compare("topic", "glob", "Ord*"), False),
        (Compare("topic", "==", "order"), False),
        (Compare("topic", "<", "z"), False),
    ],
)
def test_fields(predicate: Compare, answer: bool) -> None:
    assert ask(predicate) is answer


def test_what_is_missing_at_the_end_stays_missing() -> None:
    assert ask(Compare("latency_ms", ">", 0), message()) is False
    assert ask(Compare("error", "!=", 0), message()) is False
    orphan = message("response", api_key=None, api=None, client_id=None, body=None, latency_ns=None)
    assert ask(Compare("api", "==", 0), response=orphan) is False
    assert ask(Compare("correlation_id", "==", 5), response=orphan) is True


def test_topics_come_from_either_message() -> None:
    everything = message(api_key=3, api="Metadata", api_version=1, body={"topics": None})
    body = {"brokers": [], "topics": [{"error_code": 0, "name": "orders", "partitions": []}]}
    answer = message("response", api_key=3, api="Metadata", api_version=1, body=body)
    wanted = Compare("topic", "==", "orders")
    assert ask(wanted, everything, unknown=OPEN) is None
    assert ask(wanted, everything, answer) is True
    # A request that names it is enough; one that names another may still be answered with it.
    assert ask(wanted, message(), unknown=OPEN) is True


def test_a_client_id_that_is_not_utf8_can_be_named() -> None:
    assert ask(Compare("client_id", "==", "\\xffx"), message(client_id=b"\xffx")) is True


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("10", 10_000_000),
        ("10ms", 10_000_000),
        ("1.5s", 1_500_000_000),
        (".5s", 500_000_000),
        ("250us", 250_000),
        ("250 µs", 250_000),
        ("7ns", 7),
        ("2m", 120_000_000_000),
        ("0.1", 100_000),
    ],
)
def test_durations(text: str, nanoseconds: int) -> None:
    assert filters.parse_duration(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "ms", "-1", "1h", "1 000", "1e3", "inf"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        filters.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("2026-11-21T04:00:00Z", 1_795_233_600_000_000_000),
        ("2026-11-21t04:00:00.123456789z", TIME_NS),
        ("2026-11-21 04:00", 1_795_233_600_000_000_000),
        ("2026-11-21T05:30:00+01:30", 1_795_233_600_000_000_000),
        ("1969-12-31T23:59:59.5Z", -500_000_000),
    ],
)
def test_moments(text: str, nanoseconds: int) -> None:
    assert filters.parse_moment(text) == nanoseconds


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)))
def test_moments_are_what_datetime_says(moment: datetime) -> None:
    wanted = int(moment.replace(microsecond=0, tzinfo=UTC).timestamp()) * 10**9 + moment.microsecond * 1000
    assert filters.parse_moment(moment.isoformat() + "Z") == wanted


def test_relative_moments_wait_for_the_first_packet() -> None:
    assert filters.parse_moment("+10s") == Moment(offset_ns=10_000_000_000)
    assert filters.parse_moment("+10") == Moment(offset_ns=10_000_000_000)
    assert filters.parse_moment("04:00:01.5") == Moment(day_ns=14_401_500_000_000)
    late = Compare("time", ">=", filters.parse_moment("+1ms"))
    assert ask(late, message(), start_ns=TIME_NS - 1_000_000) is True
    assert ask(late, message(), start_ns=TIME_NS - 999_999) is False
    assert ask(late, message()) is False
    clock = filters.parse_moment("04:00:00.123456789")
    assert ask(Compare("time", ">=", clock), message(), start_ns=TIME_NS - 3_600_000_000_000) is True
    assert ask(Compare("time", "<", clock), message(), start_ns=TIME_NS - 3_600_000_000_000) is False


@pytest.mark.parametrize("text", ["", "noon", "25:00", "2026-13-01T00:00:00Z", "2026-11-21", "+", "+x", "04:60"])
def test_moments_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        filters.parse_moment(text)


def test_apis_by_name_key_and_comma_lists() -> None:
    assert filters.api_filter(["Produce"]) == Compare("api", "==", 0)
    assert filters.api_filter(["list_offsets, 3", "fetch"]) == Or(
        (Compare("api", "==", 2), Compare("api", "==", 3), Compare("api", "==", 1))
    )
    assert filters.api_filter(["999"]) == Compare("api", "==", 999)
    for wrong in ("Prodce", "", "-1", "1.5"):
        with pytest.raises(UsageError):
            filters.api_filter([wrong])


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("10.0.0.5", Compare("host", "==", "10.0.0.5")),
        ("10.0.0.5:9092", Compare("host", "==", "10.0.0.5:9092")),
        ("::1", Compare("host", "==", "::1")),
        ("[::1]", Compare("host", "==", "::1")),
        ("[::1]:9092", Compare("host", "==", "[::1]:9092")),
        ("2001:DB8:0:0::1", Compare("host", "==", "2001:db8::1")),
    ],
)
def test_hosts(text: str, predicate: Compare) -> None:
    assert filters.host_filter(text) == predicate


@given(st.ip_addresses(), st.integers(0, 65535))
def test_hosts_match_the_endpoints_they_name(address: ipaddress.IPv4Address, port: int) -> None:
    end = Endpoint(str(address), port)
    one = message(client=end)
    assert ask(filters.host_filter(str(end)), one) is True
    assert ask(filters.host_filter(str(address)), one) is True


@pytest.mark.parametrize("text", ["", "kafka", "10.0.0", "10.0.0.5:", "10.0.0.5:x", "[::1", "::1]:5", "1.2.3.4.5"])
def test_hosts_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        filters.host_filter(text)


def test_topics_and_clients_by_name_or_pattern() -> None:
    assert filters.topic_filter(["orders"]) == Compare("topic", "==", "orders")
    assert filters.topic_filter(["ord*", "x"]) == Or((Compare("topic", "glob", "ord*"), Compare("topic", "==", "x")))
    assert filters.topic_filter([]) is None
    by_client = filters.client_filter(["[app]"])
    assert ask(by_client, message(client_id="[app]")) is True
    assert ask(by_client, message(client_id="a")) is True
    assert ask(by_client, message(client_id="[app")) is False


def test_nothing_selects_everything() -> None:
    assert filters.all_of([None, None]) is None
    assert filters.any_of([]) is None
    events: list[Any] = [message(), Problem("x", "y"), message("response")]
    assert Selector(None).feed(events) == events


# -- the selector ---------------------------------------------------------------------------------------------------


def exchange(number: int, **fields: Any) -> tuple[Message, Message, Exchange]:
    errors = fields.pop("errors", ())
    request = message(exchange=number, **fields)
    response = message("response", exchange=number, errors=errors, **fields)
    return request, response, Exchange(number, 3, "answered", request, response)


def test_what_the_request_decides_is_shown_at_once() -> None:
    request, response, end = exchange(1)
    selector = Selector(Compare("client_id", "==", "rdkafka"))
    assert selector.feed([request]) == [request]
    assert selector.feed([response]) == [response]
    assert selector.feed([end]) == [end]
    other = exchange(2, client_id="other")
    assert [selector.feed([event]) for event in other] == [[], [], []]
    assert selector._decided == {}


def test_what_needs_the_response_waits_for_the_end_and_both_sides_come() -> None:
    request, response, end = exchange(1, errors=(ERROR,))
    selector = Selector(Compare("error", "!=", 0))
    assert selector.feed([request]) == []
    assert selector.feed([response]) == []
    assert selector.feed([end]) == [request, response, end]
    assert selector.feed(exchange(2)) == []


def test_an_exchange_without_a_response_or_a_request() -> None:
    request, response, _ = exchange(1)
    unanswered = Exchange(1, 3, "unanswered", request, None)
    assert Selector(Not(Compare("error", "!=", 0))).feed([request, unanswered]) == [request, unanswered]
    orphan = Exchange(2, 3, "orphan", None, response)
    assert Selector(Compare("connection", "==", 3)).feed([response, orphan]) == [response, orphan]


@given(st.data())
def test_both_sides_of_an_exchange_share_one_answer_in_any_interleaving(data: st.DataObject) -> None:
    ids = ["a", "b"]
    exchanges = [
        exchange(number, client_id=data.draw(st.sampled_from(ids)), errors=data.draw(st.sampled_from([(), (ERROR,)])))
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
        wanted = ask(predicate, request, response)
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
    # A token is of no API; a problem may have cost messages of any.
    by_api = Selector(Compare("api", "==", 0))
    assert by_api.feed([token, here]) == [here]
    assert Selector(Compare("time", ">", TIME_NS)).feed([Problem("x", "y", time_ns=TIME_NS), capture]) == [capture]


def test_problems_of_an_exchange_go_with_it() -> None:
    request, _, _ = exchange(1)
    end = Exchange(1, 3, "unanswered", request, None)
    problem = Problem("request-unanswered", "exchange 1: …", connection=3, exchange=1)
    for wanted in (Compare("api", "==", 0), Compare("topic", "==", "orders"), Compare("exchange", "==", 1)):
        assert Selector(wanted).feed([request, end, problem]) == [request, end, problem]
    for other in (Compare("api", "==", 1), Compare("topic", "==", "x"), Compare("error", "!=", 0)):
        assert Selector(other).feed([request, end, problem]) == []
    # Of an exchange that did not end right before, what is known of the problem decides.
    assert Selector(Compare("exchange", "==", 2)).feed([problem]) == []
    assert Selector(Compare("api", "==", 1)).feed([problem]) == [problem]


def test_topics_that_are_named_by_their_ids() -> None:
    topic = {"topic_id": "3hvnHBaqQU2Y6pOqkwEIng", "_topic_name": "orders", "partitions": []}
    request = message(api_key=1, api="Fetch", api_version=13, body={"topics": [topic]})
    assert ask(Compare("topic", "glob", "ord*"), request) is True
    request = message(api_key=1, api="Fetch", api_version=13, body={"topics": []}, session_topics=("orders",))
    assert ask(Compare("topic", "==", "orders"), request) is True
    assert ask(Compare("topic", "==", "payments"), request, unknown=OPEN) is None, "the response may name it"


def test_bodies_of_unknown_versions_name_no_topic() -> None:
    assert ask(Compare("topic", "==", "orders"), message(body=None), message("response", body=PRODUCED)) is True
    assert ask(Compare("topic", "==", "orders"), message(body=None)) is False
    assert PRODUCE["topic_data"][0]["name"] == "orders"
