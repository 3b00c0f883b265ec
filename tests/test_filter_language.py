"""The language of `--filter`: what it means, against evaluations that know nothing of it, and what it refuses."""

from __future__ import annotations

import functools
import json
import pickle
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import kafkasniff
from kafkasniff.errors import UsageError
from kafkasniff.filters import And, Candidate, Compare, Moment, Not, Or, Selector, compiled, error_filter, needs_records
from kafkasniff.filters.expression import MAX_PATTERN, parse_filter
from kafkasniff.filters.fields import ALL, FIELDS, LATE, values_at
from kafkasniff.filters.literals import MAX_DIGITS, SIZES
from kafkasniff.filters.paths import RECORDS
from kafkasniff.filters.syntax import MAX_DEPTH, MAX_LENGTH
from kafkasniff.filters.tree import Predicate, needs_topic_names
from kafkasniff.kafka.definition import FieldDefinition
from kafkasniff.model import ErrorCode, Exchange, Message, Problem, SaslToken
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT
from tests.sinks.messages import BROKER, CLIENT, PRODUCE, PRODUCED, TIME_NS, message

FAILED = (
    ErrorCode(6, "NOT_LEADER_OR_FOLLOWER", "responses[0].partition_responses[0].error_code"),
    ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", "responses[0].partition_responses[1].error_code"),
)


def exchange(request: Message | None, response: Message | None, **fields: Any) -> Exchange:
    return Exchange(17, 3, "answered" if response else "unanswered", request, response, **fields)


ANSWERED = exchange(message(), message("response"), software_name="rdkafka", software_version="2.6.0", retransmits=2)
REFUSED = exchange(message(), message("response", errors=FAILED))
UNANSWERED = exchange(message(), None, problems=(Problem("request-unanswered", "x"),))
ORPHAN = exchange(
    None, message("response", api_key=None, api=None, api_version=None, client_id=None, body=None, latency_ns=None)
)


def ask(predicate: Predicate, of: Exchange, **options: Any) -> bool | None:
    return compiled(predicate)(Candidate(request=of.request, response=of.response, ended=of, **options))


def holds(expression: str, of: Exchange = ANSWERED) -> bool | None:
    return ask(parse_filter(expression), of)


# -- what it means ----------------------------------------------------------------------------------------------------


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


def test_without_a_response_nothing_is_known_of_errors() -> None:
    for of in (UNANSWERED, ORPHAN):
        for expression in ('error == "NONE"', 'error != "NONE"', "has error", "error_count >= 0", "latency_ms >= 0"):
            assert holds(expression, of) is False
        assert holds("error == null", of) is True
    assert holds('problems == "request-unanswered" and status != "answered" and not response', UNANSWERED) is True
    assert holds("api == null and not has request and size == 80", ORPHAN) is True
    assert holds("request.acks == null and response.responses == null", ORPHAN) is True


def test_values_of_other_types_equal_nothing() -> None:
    body = {**PRODUCE, "acks": {"redacted": 4}, "timeout_ms": True, "transactional_id": b"\xff"}
    of = exchange(message(body=body), None)
    assert holds("acks == null", of) is False
    assert holds("acks < 100", of) is False
    assert holds("acks != 0", of) is True, "it is there, and is not 0"
    assert holds("request.timeout_ms == 1ms", of) is False
    assert holds(r'request.transactional_id == "\\xff"', of) is True
    assert holds(r'request.transactional_id =~ "^\\xff$"', of) is True


def test_times_that_the_first_packet_makes_definite() -> None:
    later = parse_filter('time >= "+1ms"')
    assert later == Compare("time", ">=", Moment(offset_ns=1_000_000))
    assert ask(later, ANSWERED, start_ns=TIME_NS - 1_000_000) is True
    assert ask(later, ANSWERED, start_ns=TIME_NS) is False
    assert ask(later, ANSWERED) is False
    same = parse_filter('time != "04:00:00.123456789"')
    assert ask(same, ANSWERED, start_ns=TIME_NS) is False
    assert ask(same, ANSWERED, start_ns=TIME_NS - 86_400_000_000_000) is True
    assert ask(same, ANSWERED) is False


def test_escapes() -> None:
    assert parse_filter(r'topic == "a\"b\\c\n\x41\u00e9"') == Compare("topic", "==", 'a"b\\c\nAé')
    assert parse_filter(r"topic == 'it\'s'") == Compare("topic", "==", "it's")
    assert parse_filter(r'topic =~ "\d\.\"\\"') == Compare("topic", "=~", r"\d\.\"\\")
    assert holds(r'topic =~ "\""', exchange(message(body={"topic_data": [{"name": 'a"b'}]}), None)) is True


@pytest.mark.parametrize(("unit", "size"), SIZES.items())
def test_sizes(unit: str, size: int) -> None:
    assert parse_filter(f"size > 3{unit}") == Compare("size", ">", 3 * size)
    assert str(size).strip("0") == "1" or (size & (size - 1) == 0 and "i" in unit)


def test_whole_numbers_keep_their_digits() -> None:
    assert parse_filter(f"request.max_wait_ms == {2**63 - 1}") == Compare("request.max_wait_ms", "==", 2**63 - 1)
    assert parse_filter("latency_ms == 0.000001") == Compare("latency_ms", "==", 1)
    assert parse_filter("latency_ms == -1.5s") == Compare("latency_ms", "==", -1_500_000_000)
    assert parse_filter("throttle_time_ms > 1500us") == Compare("throttle_time_ms", ">", 1.5)
    assert parse_filter("api_version == 9.0") == Compare("api_version", "==", 9)


# -- structure --------------------------------------------------------------------------------------------------------

TRUE, FALSE = "connection == 3", "connection == 4"


def structures() -> st.SearchStrategy[str]:
    """Boolean expressions in the words that Python has, too, with no more parentheses than are drawn."""
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
def test_words_bind_as_in_python(structure: str, signs: bool) -> None:
    expected = eval(structure.replace(TRUE, "True").replace(FALSE, "False"))  # our own two words
    if signs:
        structure = structure.replace("and", "&&").replace("or", "||").replace("not", "!")
    assert holds(structure) is expected


def test_the_tree_is_that_of_the_short_forms() -> None:
    assert parse_filter('api == "fetch" and topic == "a" and error != "NONE"') == And(
        (Compare("api", "==", 1), Compare("topic", "==", "a"), Compare("error", "!=", 0))
    )
    assert parse_filter("error") == error_filter()
    assert parse_filter("not (exchange in (1, 2) or latency_ms > 1ms)") == Not(
        Or((Compare("exchange", "in", (1, 2)), Compare("latency_ms", ">", 1_000_000)))
    )


def test_what_an_expression_needs() -> None:
    records = "request.topic_data.partition_data.records.batches.records.key == 'a'"
    assert needs_records(parse_filter(f"api == 0 or not ({records})"))
    assert not needs_records(parse_filter("request.topic_data.partition_data.records.batches.magic == 2"))
    assert needs_records(parse_filter("response.responses.partitions.records.batches.records._value.type == 'x'"))
    for expression in ("not (api == 1 or topic == 'a')", "response.responses._topic_name == 'a'"):
        assert needs_topic_names(parse_filter(expression))
    assert not needs_topic_names(parse_filter("request.topics.name == 'a'"))


def test_trees_travel() -> None:
    tree = parse_filter(
        'topic =~ "^o" and time > "+1s" and request.acks in (1, -1) and not response.throttle_time_ms > 1s or error'
    )
    again = pickle.loads(pickle.dumps(tree))
    assert again == tree
    assert ask(again, REFUSED, start_ns=0) is True


# -- law: complement, and what is decided early stays -----------------------------------------------------------------

CAPTURES = (
    "java-errors.pcap",
    "java-transactions.pcap",
    "java-group-consumer.pcap",
    "java-sasl.pcap",
    "java-0.9.pcap",
    "kafka-python-admin.pcap",
)


@functools.cache
def real_exchanges() -> tuple[Exchange, ...]:
    found: list[Exchange] = []
    for name in CAPTURES:
        found.extend(list(kafkasniff.read(ROOT / "captures" / name))[::7])
    return (ANSWERED, REFUSED, UNANSWERED, ORPHAN, *found)


ATOMS = (
    *(f"has {name}" for name in sorted(FIELDS)),
    *(f"{name} == null" for name in sorted(FIELDS)),
    *(f"{name} != {value}" for name, value in (("api", 3), ("error", 0), ("topic", "'a'"), ("member_id", "''"))),
    *(f"{name} > 5" for name, field in FIELDS.items() if field.kind in {"number", "duration", "size"}),
    *(f"{name} !~ 'e'" for name, field in FIELDS.items() if field.kind in {"text", "host", "status"}),
    *(
        f"{name} =~ '(?i)e'"
        for name, field in FIELDS.items()
        if field.kind in {"text", "host", "status", "api", "error"}
    ),
    'error == "NONE"',
    'api in ("Fetch", "Metadata")',
    "api_version not in (0, 1, 4)",
    "time < 2026-11-21T07:28:16.7Z",
    'time >= "+100ms"',
    'host == "127.0.0.1"',
    "request.topics",
    "has request.topics.name",
    'response.error_code == "NONE"',
    'response.topics.partitions.error_code != "NONE"',
    "response.throttle_time_ms < 1",
    "request.validate_only == true",
    "request.validate_only != false",
    "request._anything.at.all == 1",
)


def expressions() -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from(ATOMS),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map(lambda parts: f"({''.join(parts)})"),
            inner.map("not ({})".format),
        ),
        max_leaves=6,
    )


def atoms_hold_for_every_exchange(expression: str) -> tuple[int, int]:
    """How many exchanges an expression and its negation hold for; that what is decided early stays."""
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


@pytest.mark.parametrize("atom", ATOMS)
def test_each_comparison(atom: str) -> None:
    held, failed = atoms_hold_for_every_exchange(atom)
    assert held + failed == len(real_exchanges())


@given(expressions())
def test_not_is_the_complement_and_the_request_decides_for_good(expression: str) -> None:
    atoms_hold_for_every_exchange(expression)


@pytest.mark.parametrize("name", sorted(ALL - LATE))
def test_what_only_the_request_tells_is_decided_at_the_request(name: str) -> None:
    test = compiled(Compare(name, "exists"))
    for of in real_exchanges():
        if of.request is not None:
            assert test(Candidate(request=of.request, unknown=LATE)) is not None


def test_both_sides_come_at_the_request_where_that_decides() -> None:
    request, response = message(), message("response")
    end = Exchange(17, 3, "answered", request, response)
    early = Selector(parse_filter('api == "Produce" and acks == "all" and not client_id == "x"'))
    assert [early.feed([event]) for event in (request, response, end)] == [[request], [response], [end]]
    late = Selector(parse_filter("api == 0 and latency_ms > 1ms"))
    assert [late.feed([event]) for event in (request, response, end)] == [[], [], [request, response, end]]
    # What is false already needs no response.
    never = Selector(parse_filter("api == 1 and latency_ms > 1ms"))
    assert never.feed([request]) == []
    assert never._decided == {17: False}


def test_tokens_and_problems() -> None:
    token = SaslToken("request", 17, "PLAIN", None, 3, "a.pcap", TIME_NS, CLIENT, BROKER, 9)
    gap, other = Problem("tcp-gap", "x", connection=3), Problem("capture-cut", "x")

    def passed(expression: str) -> list[Any]:
        return Selector(parse_filter(expression)).feed([token, gap, other])

    assert passed('client == "10.0.0.5" and size == 17') == [token, gap, other]
    assert passed("connection != 3") == [other]
    assert passed('problems == "tcp-gap"') == [gap]
    assert passed('api == "Fetch"') == [gap, other]
    assert passed('not api == "Fetch"') == [token, gap, other]
    assert passed("request.acks == 1 and response.throttle_time_ms > 0") == [gap, other]


# -- against an evaluation of the JSON lines --------------------------------------------------------------------------


def at(value: Any, *path: str) -> list[Any]:
    """The values at a path of a JSON object, lists flattened."""
    found = [value]
    for name in path:
        found = [one.get(name) for one in found if isinstance(one, dict)]
        while any(isinstance(one, list) for one in found):
            found = [more for one in found for more in (one if isinstance(one, list) else [one])]
    return [one for one in found if one is not None]


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


JSON_CASES: dict[str, tuple[str, Any]] = {
    "java-errors": (
        'response.responses.partition_responses.error_code != "NONE"',
        lambda request, response: any(at(response["body"], "responses", "partition_responses", "error_code")),
    ),
    "java-codecs": (
        "request.topic_data.partition_data.records.batches.records.value =~ '數據 .$' and request_size > 410B",
        lambda request, response: (
            request["size"] > 410
            and any(
                text_of(value).endswith("數據 ✓")
                for value in at(
                    request["body"], "topic_data", "partition_data", "records", "batches", "records", "value"
                )
            )
        ),
    ),
    "java-group-classic": (
        'api =~ "Group$" and response.members != null or latency_ms >= 400ms',
        lambda request, response: (
            (request["api"].endswith("Group") and bool(at(response["body"], "members")))
            or response["latency_ms"] >= 400
        ),
    ),
    "java-transactions": (
        'request.transactional_id =~ "." and not response.results_by_topic_v3_and_below and api_version in (2,3,4,5,6)',
        lambda request, response: (
            any(at(request["body"], "transactional_id"))
            and not at(response["body"], "results_by_topic_v3_and_below")
            and request["api_version"] in {2, 3, 4, 5, 6}
        ),
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
def test_the_same_as_from_the_json_lines(name: str) -> None:
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


# -- what it refuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "an empty expression"),
        (" \n", "an empty expression"),
        ('api == "Fetch" and latncy_ms > 1', 'column 20: unknown field "latncy_ms"; did you mean latency_ms?'),
        ("errors", 'column 1: unknown field "errors"; did you mean error?'),
        ("zzz", 'column 1: unknown field "zzz"; docs/filters.md lists the fields'),
        ("body.acks == 1", 'column 1: unknown field "body.acks"; bodies are request.… and response.…'),
        ("topic.name == 'x'", 'column 1: unknown field "topic.name"'),
        ('request.topics.nam == "a"', 'column 1: no API has "request.topics.nam"; did you mean request.topics.name?'),
        ('api == 0 and request.topics.name == "a"', 'column 14: no version of Produce has "request.topics"; did you'),
        ("request.acks.more == 1", 'no API has "request.acks.more"'),
        ("api == 'Heartbeat' and request.x", "there are generation_id, group_id, group_instance_id, member_id"),
        ("request.topic_data.partition_data.records.batch", "did you mean request.topic_data.partition_data.records"),
        ("api = 1", "column 5: one '=' is no operator; did you mean '=='?"),
        ("api == 1 & topic", "column 10: one '&' is no operator"),
        ("topic[0] == 'a'", "column 6: no index can be given"),
        ("topic == 'a", "column 10: the string has no end"),
        (r"topic == 'a\'", "column 10: the string has no end"),
        ("request. == 1", "column 8: a path has a name on both sides of each '.'"),
        ("api == 1 $", "column 10: '$' is nothing that can stand here"),
        ("api ==", "column 7: a constant should stand here, not the end"),
        ("api == Fetch", "column 8: 'Fetch' is no constant; did you mean \"Fetch\"?"),
        ("api == and", "column 8: a constant should stand here, not 'and'"),
        ("100 < latency_ms", "column 1: a field should stand here, not '100'"),
        ("(api == 1", "column 10: 'and', 'or' or ')' should stand here, not the end"),
        ("api == 1)", "column 9: 'and', 'or' or the end should stand here, not ')'"),
        ("api == 1 topic", "column 10: 'and', 'or' or the end should stand here, not 'topic'"),
        ("1ms", "column 1: a field should stand here, not '1ms'"),
        ("api in 1", "column 8: a list in parentheses should stand here, not '1'"),
        ("api in ()", "column 9: a constant should stand here, not ')'"),
        ("api in (1 2)", "column 11: ',' or ')' should stand here, not '2'"),
        ("api not 1", "column 5: 'and', 'or' or the end should stand here, not 'not'"),
        ("has", "column 4: a field should stand here, not the end"),
        ("not", "column 4: a field should stand here, not the end"),
        ("1 == 1", "column 1: a field should stand here"),
        ("api == 1 and", "column 13: a field should stand here, not the end"),
        ("latency_ms > 'a'", "column 14: latency_ms is a duration"),
        ("latency_ms > 1h", "column 14: '1h' is not a duration"),
        ("latency_ms > 1kB", "column 14: '1kB' is not a duration"),
        ("size > 1ms", "column 8: 'ms' is no unit of a size (B, kB"),
        ("api_version > 1kB", "column 15: api_version is a number, not 1kB"),
        ("client_id == 1", "column 14: client_id is text, not 1"),
        ("client_id > 'a'", "column 11: client_id is text: it has no >"),
        ("connection =~ '1'", "column 12: connection is a number: it has no =~"),
        ("request.topics == 1", "column 16: request.topics is no single value: it has no =="),
        ("request.validate_only > true", "column 23: request.validate_only is true or false: it has no >"),
        ("request.validate_only == 1", "column 26: request.validate_only is true or false, not 1"),
        ("request._x > 'a'", "column 14: > compares numbers, not text"),
        ("topic < null", "column 7: null can be compared by == and != only, not by <"),
        ("topic in ('a', null)", "column 7: null can be compared by == and != only, not by in"),
        ("topic =~ 1", "column 10: =~ takes a pattern in quotes"),
        ("topic =~ '('", "column 10: not a regular expression: missing )"),
        ("topic =~ 'a{99999999999}'", "column 10: not a regular expression: "),
        (f"topic =~ '{'(' * 900}'", "column 10: not a regular expression: "),
        (f"topic =~ '{'a' * (MAX_PATTERN + 1)}'", "column 10: a pattern of more than 1,000 characters"),
        ("api =~ 'nothing'", "column 8: no api has a name in which this is found"),
        ("api == 'Fetsh'", 'column 8: no API is called "Fetsh"; did you mean Fetch?'),
        ("api == 'qqqq'", 'column 8: no API is called "qqqq"; `kafkasniff api` lists them'),
        ("error == 'NOT_LEADER'", "did you mean NOT_LEADER_OR_FOLLOWER?"),
        ("error == 1.5kB", "column 10: error is an error, by name or code, not 1.5kB"),
        ("status == 'done'", 'column 11: "done" is no status; there are answered, no_response'),
        ("host == 'kafka'", "column 9: 'kafka' is not an address"),
        ("acks == 'some'", 'column 9: acks is a number or one of ALL, NONE, LEADER, not "some"'),
        ("time > 'noon'", "column 8: 'noon' is not a time"),
        ("time > 5", "column 8: time is a time (2026-11-21T04:00:00Z), not 5"),
        ("time > 2026-13-01T00:00", "column 8: '2026-13-01T00:00' is not a time"),
        ("time in ('+1s')", "column 6: in takes times with their dates only"),
        ("response.responses.partitions.records.batches.max_timestamp > '+1s'", "takes a time with its date"),
        (r"topic == 'a\q'", r"column 12: \q is no escape"),
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


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("not ", ""), ("!", ""), ("!(", ")")])
def test_depth_is_bounded(opening: str, closing: str) -> None:
    deep = MAX_DEPTH // len(opening.strip().replace("not", "!"))
    assert holds(f"{opening * deep}api == 0{closing * deep}") in (True, False)
    with pytest.raises(UsageError, match="more than 64 parentheses and negations"):
        parse_filter(f"{opening * (deep + 1)}api == 0{closing * (deep + 1)}")


def test_breadth_is_bounded_by_the_length_only() -> None:
    many = " or ".join(["api == 1"] * 1300)
    assert holds(many) is False
    numbers = ",".join(str(number) for number in range(10, 4000))
    assert len(numbers) > MAX_LENGTH
    assert holds(f"connection in ({numbers[:16_000].rpartition(',')[0]})") is False


WORDS = (
    *("and", "or", "not", "in", "has", "null", "true", "==", "!=", "<", "=~", "!~", "(", ")", ",", "&&", "!", "'"),
    *("api", "topic", "time", "error", "latency_ms", "request", "request.topics.name", "response._x", "request.acks"),
    *('"a"', "'('", '"Fetch"', "1", "-1.5ms", "2kB", "2026-11-21T04:00:00Z", '"+1s"', ".", "\\", "\x00", "é"),
)


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)))
def test_any_text_is_taken_or_refused(text: str) -> None:
    try:
        tree = parse_filter(text)
    except UsageError:
        return
    for of in (ANSWERED, UNANSWERED, ORPHAN):
        assert ask(tree, of) in (True, False)


BODIES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=10,
)


@given(BODIES, st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple))
def test_paths_through_anything(body: Any, path: tuple[str, ...]) -> None:
    found = values_at(body, path)
    assert not any(value is None or isinstance(value, list) for value in found)
    if not isinstance(body, list):
        assert repr(found) == repr(at(body, *path))
    holder = message(body={"_x": body})
    for comparison in ("== 1", '!= "a"', "=~ 'a'", "> 0", "in (1, 'a', true)", "!~ 'b'", "== true", "== null"):
        assert holds(f"request._x.{'.'.join(path)} {comparison}", exchange(holder, None)) in (True, False)


def test_only_so_much_of_a_value_is_searched() -> None:
    body = {**PRODUCE, "transactional_id": "a" * (1 << 16) + "b"}
    of = exchange(message(body=body), None)
    assert holds('request.transactional_id =~ "a$"', of) is True
    assert holds('request.transactional_id =~ "b"', of) is False


# -- against what stands elsewhere ------------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "filters.md").read_text()


def test_the_page_lists_the_fields() -> None:
    rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \| ([a-z]+) \|", PAGE, re.M)
    listed = {name: kind for names, kind in rows for name in re.findall(r"`([a-z_]+)`", names)}
    assert listed == {name: field.kind for name, field in FIELDS.items()}


def test_the_page_lists_the_units() -> None:
    for unit in (*SIZES, "ns", "us", "ms", "s", "m"):
        assert f"`{unit}`" in PAGE


def test_the_commands_of_the_page_select_something() -> None:
    commands = re.findall(r"^\$ kafkasniff decode -q --filter '(.+)' (captures/.+)$", PAGE, re.M)
    assert len(commands) >= 6
    for expression, capture in commands:
        done = command("decode", "-q", "--format", "json", "--filter", expression, ROOT / capture)
        assert (done.code, done.err) == (0, "")
        assert {line["type"] for line in done.objects} == {"request", "response"}, expression


def names(fields: tuple[FieldDefinition, ...]) -> dict[str, Any]:
    return {field.name: names(field.fields) if field.fields else None for field in fields}


def test_paths_into_records_are_those_that_there_are() -> None:
    expected = names(RECORDS)

    def compare(value: Any, known: Any) -> None:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict) and known is not None:
                told = {name for name in one if not name.startswith("_")}
                assert told <= set(known)
                for name in told:
                    seen.add(name)
                    compare(one[name], known[name])

    seen: set[str] = set()
    for name in ("java-codecs", "java-transactions", "java-0.9", "sarama"):
        capture = ROOT / "captures" / f"{name}.pcap"
        for line in command("decode", "-q", "--format", "json", capture).objects:
            if line.get("api") in {"Produce", "Fetch"}:
                side = ("topic_data", "partition_data") if line["type"] == "request" else ("responses", "partitions")
                for records in at(line["body"], *side, "records"):
                    compare(records, expected)
    batch = set(expected["batches"])
    assert seen >= batch | {"truncated_bytes"} | set(expected["batches"]["records"])


def test_every_key_of_a_json_line_can_be_asked_about() -> None:
    lines = command("decode", "-q", "--format", "json", "-c", 3, ROOT / "captures" / "java-errors.pcap").objects
    line = next(line for line in lines if line["type"] == "response")
    others = {
        "type": "both messages of an exchange come or neither",
        "errors": "error",
        "body": "request.…, response.…",
    }
    assert set(line) - set(FIELDS) == set(others), json.dumps(line)[:200]


def test_what_was_produced_is_in_the_sample() -> None:
    assert values_at(PRODUCED, ("responses", "partition_responses", "base_offset")) == [1042]
