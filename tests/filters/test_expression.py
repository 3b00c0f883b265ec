"""The language of `--filter`: its meaning, checked against independent evaluations, and what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkasniff import filters
from kafkasniff.errors import UsageError
from kafkasniff.filters import Compare, Moment
from kafkasniff.filters.expression import MAX_DIGITS, MAX_PATTERN, parse_filter
from kafkasniff.filters.fields import FIELDS
from kafkasniff.filters.syntax import MAX_DEPTH, MAX_LENGTH
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT
from tests.filters.expressions import ANSWERED, ORPHAN, REFUSED, UNANSWERED, ask, at, exchange, holds
from tests.sinks.messages import PRODUCE, TIME_NS, message


@pytest.mark.parametrize(
    "expression",
    [
        'api == "Produce"',
        "api == 'produce'",
        "api == 0",
        'api in ("Fetch", 0)',
        'api =~ "^Prod"',
        'api !~ "Txn"',
        "api_key == 0 and api_version >= 9",
        "correlation_id == 5",
        'client_id == "rdkafka" && client_id =~ "^rd" && client_id != "other"',
        'client == "10.0.0.5" and client == "10.0.0.5:51334" and client_ip == "10.0.0.5" and client_port == 51334',
        'broker == "10.0.0.9:9092" and broker_ip == "10.0.0.9" and broker_port == 9092',
        'host == "10.0.0.9" and host == "10.0.0.5" and host =~ ":9092$" and host != "10.0.0.6"',
        'capture == "a.pcap"',
        "connection == 3 and exchange == 17",
        "time >= 2026-11-21T04:00:00Z and time < '2026-11-21T05:00:00.2+01:00'",
        "has request and has response and request and response",
        "size == 512 and size == 80 and request_size > 0.5kB and response_size <= 80B",
        "first_packet == 120 and last_packet >= 121",
        "latency_ms > 1 and latency_ms > 1233us and latency_ms < 1.235ms and latency_ms == 1.234",
        "duration_ms == 1.4ms and throttle_time_ms == 0 and throttle_time_ms < 1s",
        'status == "answered" and status =~ "swer"',
        'error == "NONE" and error == 0 and error_code == "none" and error_count == 0',
        "not has error and not error",
        "not has problems and problems == null",
        'topic == "orders" and topic in ("orders") and topic =~ "ord" and topic !~ "^x"',
        "partition == 0 and record_count == 12",
        "acks == -1 and acks == 'all' and acks in ('ALL', 1)",
        "group_id == null and transactional_id == null and member_id == null",
        'software_name == "rdkafka" and software_version =~ "^2\\." and retransmits == 2',
        'request.topic_data.name == "orders" and request.acks < 0 and request.timeout_ms == 30s',
        "request.topic_data.partition_data.records.batches.compression == 'lz4'",
        "request.topic_data.partition_data.records.batches.crc_ok == true",
        "request.topic_data.partition_data.records.batches.max_timestamp > 2023-11-14T22:13:30Z",
        "request.topic_data.partition_data.records.batches.base_timestamp == 1700000000000",
        "request.topic_data.partition_data.records.batches.batch_length >= 3kB",
        'response.responses.partition_responses.error_code == "NONE"',
        "has response.responses and request.transactional_id == null",
        "NOT api == 1 AND (topic OR error) And HAS topic",
        "! api == 1 && ! (api == 2 || api == 3)",
        "((((api == 0))))",
        "api\n==\t0",
    ],
)
def test_true_of_a_produce_exchange(expression: str) -> None:
    assert holds(expression) is True
    assert holds(f"not ({expression})") is False


@pytest.mark.parametrize(
    "expression",
    [
        'api == "Fetch"',
        'api != "Produce"',
        "api not in (0, 1)",
        'error != "NONE"',
        'error =~ "LEADER"',
        'topic == "Orders"',
        'topic =~ "^rders"',
        'topic not in ("orders", "x")',
        "latency_ms >= 1235us",
        "latency_ms < 0",
        "record_count > 12",
        'group_id == "x"',
        'group_id != "x"',
        'group_id !~ "x"',
        'group_id not in ("x")',
        "has group_id",
        "group_id != null",
        "request.topic_data.partition_data.records.batches.crc_ok != true",
        'request.transactional_id != "x"',
        "request.topic_data.partition_data.records.batches.records.offset >= 0",
    ],
)
def test_false_of_a_produce_exchange(expression: str) -> None:
    assert holds(expression) is False
    assert holds(f"not ({expression})") is True


def test_errors_are_all_codes_of_the_response() -> None:
    for expression in (
        'error == "NOT_LEADER_OR_FOLLOWER"',
        'error == "NOT_LEADER_FOR_PARTITION"',  # its name before 2.6
        'error == "UNKNOWN_TOPIC_OR_PARTITION"',
        'error in ("LEADER_NOT_AVAILABLE", 6)',
        'error =~ "LEADER"',
        'error != "NONE"',
        'error != "LEADER_NOT_AVAILABLE"',
        "error_count == 2",
        "has error",
        "error",
    ):
        assert holds(expression, REFUSED) is True, expression
    assert holds('error != "UNKNOWN_TOPIC_OR_PARTITION"', REFUSED) is False, "one of them is"
    assert holds('error == "NONE"', REFUSED) is False


def test_without_a_response_errors_are_unknown() -> None:
    for of in (UNANSWERED, ORPHAN):
        for expression in ('error == "NONE"', 'error != "NONE"', "has error", "error_count >= 0", "latency_ms >= 0"):
            assert holds(expression, of) is False
        assert holds("error == null", of) is True
    assert holds('problems == "request-unanswered" and status != "answered" and not response', UNANSWERED) is True
    assert holds("api == null and not has request and size == 80", ORPHAN) is True
    assert holds("request.acks == null and response.responses == null", ORPHAN) is True


def test_values_of_different_types_are_unequal() -> None:
    body = {**PRODUCE, "acks": {"redacted": 4}, "timeout_ms": True, "transactional_id": b"\xff"}
    of = exchange(message(body=body), None)
    assert holds("acks == null", of) is False
    assert holds("acks < 100", of) is False
    assert holds("acks != 0", of) is True, "it is there, and is not 0"
    assert holds("request.timeout_ms == 1ms", of) is False
    assert holds(r'request.transactional_id == "\\xff"', of) is True
    assert holds(r'request.transactional_id =~ "^\\xff$"', of) is True


def test_times_that_become_definite_with_the_first_packet() -> None:
    later = parse_filter('time >= "+1ms"')
    assert later == Compare("time", ">=", Moment(offset_ns=1_000_000))
    assert ask(later, ANSWERED, start_ns=TIME_NS - 1_000_000) is True
    assert ask(later, ANSWERED, start_ns=TIME_NS) is False
    assert ask(later, ANSWERED) is False
    same = parse_filter('time != "04:00:00.123456789"')
    assert ask(same, ANSWERED, start_ns=TIME_NS) is False
    assert ask(same, ANSWERED, start_ns=TIME_NS - 86_400_000_000_000) is True
    assert ask(same, ANSWERED) is False


JSON_CASES: dict[str, tuple[str, Any]] = {
    "java-errors": (
        'response.responses.partition_responses.error_code != "NONE"',
        lambda request, response: any(at(response["body"], "responses", "partition_responses", "error_code")),
    ),
    "java-admin": (
        "request.validate_only == false or response.topics.num_partitions > 1 or error",
        lambda request, response: (
            False in at(request["body"], "validate_only")
            or any(count > 1 for count in at(response["body"], "topics", "num_partitions"))
            or bool(response["errors"])
        ),
    ),
}


@pytest.mark.parametrize("name", JSON_CASES)
def test_results_match_the_json_lines(name: str) -> None:
    capture = ROOT / "captures" / f"{name}.pcap"
    expression, wanted = JSON_CASES[name]
    pairs: dict[int, dict[str, Any]] = {}
    lines = command("decode", "-q", "--format", "json", capture).objects
    for line in lines:
        pairs.setdefault(line["exchange"], {})[line["type"]] = line
    expected = {
        number for number, pair in pairs.items() if len(pair) == 2 and wanted(pair["request"], pair["response"])
    }
    assert 0 < len(expected) < len(pairs)
    found = command("decode", "-q", "--format", "json", "--filter", expression, capture).objects
    assert sorted(line["exchange"] for line in found) == sorted([*expected, *expected])


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "an empty expression"),
        ('api == "Fetch" and latncy_ms > 1', 'column 20: unknown field "latncy_ms"; did you mean latency_ms?'),
        ("errors", 'column 1: unknown field "errors"; did you mean error?'),
        ("body.acks == 1", 'column 1: unknown field "body.acks"; bodies are request.… and response.…'),
        ('request.topics.nam == "a"', 'column 1: no API has "request.topics.nam"; did you mean request.topics.name?'),
        ('api == 0 and request.topics.name == "a"', 'column 14: no version of Produce has "request.topics"; did you'),
        ("api == 'Heartbeat' and request.x", "the names are generation_id, group_id, group_instance_id, member_id"),
        ("request.topic_data.partition_data.records.batch", "did you mean request.topic_data.partition_data.records"),
        ("api = 1", "column 5: '=' is not an operator; did you mean '=='?"),
        ("api == 1 & topic", "column 10: '&' is not an operator"),
        ("topic[0] == 'a'", "column 6: indices are not supported"),
        ("topic == 'a", "column 10: unterminated string"),
        ("request. == 1", "column 8: a path has a name on both sides of each '.'"),
        ("api == 1 $", "column 10: unexpected '$'"),
        ("api ==", "column 7: expected a constant, not the end"),
        ("api == Fetch", "column 8: 'Fetch' is not a constant; did you mean \"Fetch\"?"),
        ("100 < latency_ms", "column 1: expected a field, not '100'"),
        ("(api == 1", "column 10: expected 'and', 'or' or ')', not the end"),
        ('contains(topic, "x")', "column 1: 'contains' is an operator, not a function: FIELD contains \"TEXT\""),
        ('has a and topic.Matches("x")', "column 17: 'Matches' is an operator, not a function: FIELD matches \"TEXT\""),
        ('record.key.contains("x")', "column 12: 'contains' is an operator, not a function: FIELD contains \"TEXT\""),
        ("api == 1)", "column 9: expected 'and', 'or' or the end, not ')'"),
        ("api in (1 2)", "column 11: expected ',' or ')', not '2'"),
        ("api not 1", "column 5: expected 'and', 'or' or the end, not 'not'"),
        ("has", "column 4: expected a field, not the end"),
        ("latency_ms > 'a'", "column 14: latency_ms is a duration"),
        ("latency_ms > 1w", "column 14: '1w' is not a duration"),
        ("size > 1ms", "column 8: 'ms' is not a unit of size (B, kB"),
        ("client_id > 'a'", "column 11: client_id is text: it does not support >"),
        ("request.topics == 1", "column 16: request.topics is a structure: it does not support =="),
        ("request.validate_only > true", "column 23: request.validate_only is true or false: it does not support >"),
        ("request._x > 'a'", "column 14: > compares numbers, not text"),
        ("topic < null", "column 7: null can be compared with == and != only, not with <"),
        ("topic =~ 1", "column 10: =~ takes a pattern in quotes"),
        ("topic =~ '('", "column 10: not a regular expression: missing )"),
        (f"topic =~ '{'a' * (MAX_PATTERN + 1)}'", "column 10: a pattern of more than 1,000 characters"),
        ("api =~ 'nothing'", "column 8: the pattern matches no name of apis"),
        ("api == 'Fetsh'", "column 8: no API is called 'Fetsh'; did you mean Fetch?"),
        ("error == 'NOT_LEADER'", "did you mean NOT_LEADER_OR_FOLLOWER?"),
        ("error == 1.5kB", "column 10: error is an error, by name or code, not 1.5kB"),
        ("status == 'done'", 'column 11: "done" is not a status; the statuses are answered, no_response'),
        ("host == 'kafka'", "column 9: 'kafka' is not an address"),
        ("acks == 'some'", 'column 9: acks is a number or one of ALL, NONE, LEADER, not "some"'),
        ("time > 'noon'", "column 8: 'noon' is not a time"),
        ("time in ('+1s')", "column 6: in takes times with their dates only"),
        ("response.responses.partitions.records.batches.max_timestamp > '+1s'", "takes a time with a date"),
        (r"topic == 'a\q'", r"column 12: \q is not an escape"),
        ("topic == '\ud800'", "column 11: not UTF-8"),
        ("connection == " + "1" * (MAX_DIGITS + 1), "column 15: a number of more than 32 characters"),
        ("x" * (MAX_LENGTH + 1), "longer than 16,384 characters"),
    ],
)
def test_refused_with_the_column(expression: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_filter(expression)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 400


def test_every_key_of_a_json_line_is_a_field() -> None:
    """But the type, since both messages of an exchange come or neither; `error` is for errors, paths for the body."""
    lines = command("decode", "-q", "--format", "json", "-c", 3, ROOT / "captures" / "java-errors.pcap").objects
    line = next(line for line in lines if line["type"] == "response")
    assert set(line) - set(FIELDS) == {"type", "errors", "body"}


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        *(("10", 10_000_000), ("10ms", 10_000_000), ("1.5s", 1_500_000_000), (".5s", 500_000_000), ("250us", 250_000)),
        *(("250 µs", 250_000), ("7ns", 7), ("2m", 120_000_000_000), ("0.1", 100_000)),
    ],
)
def test_durations(text: str, nanoseconds: int) -> None:
    assert filters.parse_duration(text) == nanoseconds


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
def test_times(text: str, nanoseconds: int) -> None:
    assert filters.parse_moment(text) == nanoseconds


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)))
def test_times_match_datetime(moment: datetime) -> None:
    wanted = int(moment.replace(microsecond=0, tzinfo=UTC).timestamp()) * 10**9 + moment.microsecond * 1000
    assert filters.parse_moment(moment.isoformat() + "Z") == wanted


def test_requirements_of_an_expression() -> None:
    records = "request.topic_data.partition_data.records.batches.records.key == 'a'"
    assert filters.needs_records(parse_filter(f"api == 0 or not ({records})"))
    assert not filters.needs_records(parse_filter("request.topic_data.partition_data.records.batches.magic == 2"))
    for expression in ("not (api == 1 or topic == 'a')", "response.responses._topic_name == 'a'"):
        assert filters.needs_topic_names(parse_filter(expression))
    assert not filters.needs_topic_names(parse_filter("request.topics.name == 'a'"))


def test_escapes() -> None:
    assert parse_filter(r'topic == "a\"b\\c\n\x41\u00e9"') == Compare("topic", "==", 'a"b\\c\nAé')
    assert parse_filter(r"topic == 'it\'s'") == Compare("topic", "==", "it's")
    assert parse_filter(r'topic =~ "\d\.\"\\"') == Compare("topic", "=~", r"\d\.\"\\")
    assert holds(r'topic =~ "\""', exchange(message(body={"topic_data": [{"name": 'a"b'}]}), None)) is True


TRUE, FALSE = "connection == 3", "connection == 4"


def structures() -> st.SearchStrategy[str]:
    """Boolean expressions in words that Python shares, with no more parentheses than are drawn."""
    return st.recursive(
        st.sampled_from([TRUE, FALSE]),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join),
            inner.map("({})".format),
            inner.map("not {}".format),
        ),
        max_leaves=12,
    )


@given(structures(), st.booleans())
@example(f"{TRUE} or {TRUE} and {FALSE}", False)
@example(f"not {TRUE} or {TRUE}", True)
@example(f"not {FALSE} and {FALSE}", False)
def test_precedence_as_in_python(structure: str, signs: bool) -> None:
    expected = eval(structure.replace(TRUE, "True").replace(FALSE, "False"))  # our own two words
    if signs:
        structure = structure.replace("and", "&&").replace("or", "||").replace("not", "!")
    assert holds(structure) is expected


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("not ", ""), ("!", ""), ("!(", ")")])
def test_depth_is_bounded(opening: str, closing: str) -> None:
    deep = MAX_DEPTH // len(opening.strip().replace("not", "!"))
    assert holds(f"{opening * deep}api == 0{closing * deep}") in (True, False)
    with pytest.raises(UsageError, match="more than 64 nested parentheses and negations"):
        parse_filter(f"{opening * (deep + 1)}api == 0{closing * (deep + 1)}")


def test_breadth_is_bounded_by_the_length_only() -> None:
    many = " or ".join(["api == 1"] * 1300)
    assert holds(many) is False
    numbers = ",".join(str(number) for number in range(10, 4000))
    assert len(numbers) > MAX_LENGTH
    assert holds(f"connection in ({numbers[:16_000].rpartition(',')[0]})") is False
