from __future__ import annotations

import io
from typing import Any

import pytest

from kafkasniff.model import Endpoint, ErrorCode, Exchange, Problem, SaslToken
from kafkasniff.sinks.text import CLIENT_WIDTH, PROBLEMS_SHOWN, TextSink
from kafkasniff.sinks.text_columns import LINE_CACHE
from kafkasniff.text.times import clock_time
from tests.sinks.messages import BROKER, CLIENT, PRODUCED, TIME_NS, message


def text(*events: Any, **options: Any) -> str:
    stream = io.BytesIO()
    sink = TextSink(stream, **options)
    for event in events:
        sink.write(event)
    sink.close()
    return stream.getvalue().decode(options.get("encoding", "utf-8"))


FETCH_ERROR = {
    "throttle_time_ms": 0,
    "error_code": 0,
    "session_id": 0,
    "responses": [
        {
            "topic": "orders",
            "partitions": [
                {"partition_index": 0, "error_code": 6, "current_leader": {"leader_id": 3, "leader_epoch": 2}}
            ],
        }
    ],
}


def test_the_shape_of_the_lines() -> None:
    not_leader = ErrorCode(6, "NOT_LEADER_OR_FOLLOWER", "responses[0].partitions[0].error_code")
    other = Endpoint("10.0.0.5", 51336)
    shown = text(
        message(),
        message("response"),
        message(
            "response", api_key=1, api="Fetch", api_version=12, correlation_id=6, connection=4, client=other,
            latency_ns=502_000_000, body=FETCH_ERROR, errors=(not_leader,), time_ns=TIME_NS + 502_548_000,
        ),
    )  # fmt: skip
    assert shown == (
        "2026-11-21 UTC\n"
        "04:00:00.123456  10.0.0.5:51334 → 10.0.0.9:9092  Produce v9    #17  corr 5             rdkafka   "
        "orders-0 12 records 3.1 kB lz4, acks all\n"
        "04:00:00.124690  10.0.0.5:51334 ← 10.0.0.9:9092  Produce v9    #17  corr 5    1.23 ms            "
        "orders-0 offset 1042\n"
        "04:00:00.626004  10.0.0.5:51336 ← 10.0.0.9:9092  Fetch v12     #17  corr 6     502 ms            "
        "orders-0 NOT_LEADER_OR_FOLLOWER, leader now 3\n"
    )


def test_columns_grow_and_never_shrink() -> None:
    wide = message(
        api="AlterPartitionReassignments", api_key=45, api_version=0, exchange=1234567, correlation_id=7654321,
        body={"topics": None}, client_id="quite-a-long-name", client=Endpoint("2001:db8::1234:5678", 51334),
        connection=9,
    )  # fmt: skip
    first, second, third = text(message(), wide, message()).splitlines()[1:]
    api = second.index("AlterPartitionReassignments v0")
    assert first.index("Produce v9") < third.index("Produce v9") == api
    assert first.index("#17") < third.index("#17") == second.index("#1234567")
    assert first.index("corr 5") < third.index("corr 5") == second.index("corr 7654321")
    assert first.index("rdkafka") < third.index("rdkafka") == second.index("quite-a-long-name")
    assert third.index("orders-0") == third.index("rdkafka") + len("quite-a-long-name") + 2


def test_a_date_line_marks_a_new_day() -> None:
    day = 86_400_000_000_000
    shown = text(message(), message(time_ns=TIME_NS + 1), message(time_ns=TIME_NS + day), message(time_ns=None))
    dates = [line for line in shown.splitlines() if line.endswith("UTC")]
    assert dates == ["2026-11-21 UTC", "2026-11-22 UTC"]
    assert shown.splitlines()[-1].startswith(" " * 17 + "10.0.0.5:51334 →")


def test_the_clock_goes_on_whatever_the_order_of_times() -> None:
    second = 1_000_000_000
    times = [TIME_NS + one for one in (0, 1_000, 999_000, 1_000_000, second, 61 * second, -1_000, -3600 * second, 0)]
    times += [0, 999, -1, -second, 253_402_300_800 * second]
    shown = [line for line in text(*(message(time_ns=one) for one in times)).splitlines() if "UTC" not in line]
    assert [line[:15] for line in shown] == [clock_time(one) for one in times]
    dates = [line for line in text(*(message(time_ns=one) for one in (0, -1, 0))).splitlines() if "UTC" in line]
    assert dates == ["1970-01-01 UTC", "1969-12-31 UTC", "1970-01-01 UTC"]


def test_colours_only_on_request() -> None:
    error = ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", "responses[0].partition_responses[0].error_code")
    events = [message(), message("response", errors=(error,), problems=(Problem("trailing-bytes", "x", 1),))]
    plain, coloured = text(*events), text(*events, colour=True)
    assert "\x1b" not in plain
    assert "\x1b[1;31mUNKNOWN_TOPIC_OR_PARTITION\x1b[0m" in coloured
    assert "\x1b[33mtrailing-bytes: x (at byte 1)\x1b[0m" in coloured
    stripped = coloured
    for code in ("\x1b[1;31m", "\x1b[33m", "\x1b[1m", "\x1b[36m", "\x1b[32m", "\x1b[2m", "\x1b[0m"):
        stripped = stripped.replace(code, "")
    assert stripped == plain


def test_problems_follow_their_message() -> None:
    problems = tuple(Problem("crc-mismatch", f"batch {number}", number) for number in range(PROBLEMS_SHOWN + 2))
    shown = text(message(problems=problems)).splitlines()
    assert shown[2] == " " * 17 + "crc-mismatch: batch 0 (at byte 0)"
    assert len(shown) == 2 + PROBLEMS_SHOWN + 1
    assert shown[-1].strip() == "+2 more problems"
    assert "crc-mismatch: batch 4 (at byte 4)" in text(message(problems=problems), verbosity=1)


def test_problems_of_streams_stand_in_place_with_the_endpoints_known_so_far() -> None:
    gap = Problem("tcp-gap", "1448 bytes are missing", None, 3, TIME_NS, "a.pcap", 17, "response", 1448)
    first, second, third = text(gap, message(), gap).splitlines()[1:]
    assert first == "04:00:00.123456  tcp-gap: 1448 bytes are missing (conn 3, packet 17)"
    assert "→" in second
    assert third == (
        "04:00:00.123456  10.0.0.5:51334 ← 10.0.0.9:9092  tcp-gap: 1448 bytes are missing (conn 3, packet 17)"
    )


def test_tokens_are_reported_by_their_size() -> None:
    token = SaslToken("request", 17, "PLAIN", None, 3, "a.pcap", TIME_NS, CLIENT, BROKER, 9)
    line = text(token).splitlines()[1]
    assert line == "04:00:00.123456  10.0.0.5:51334 → 10.0.0.9:9092  SASL token    conn 3  PLAIN 17 B, redacted"
    assert 'PLAIN 4 B, "\\x00u\\x00p"' in text(SaslToken("request", 4, "PLAIN", b"\0u\0p"))
    reported = {"mechanism": "PLAIN", "message": "credentials", "username": "\x1b[31mu"}
    named = text(SaslToken("request", 17, "PLAIN", None, 3, "a.pcap", TIME_NS, CLIENT, BROKER, 9, reported))
    assert named.rstrip().endswith('PLAIN credentials, user "\\x1b[31mu", 17 B, redacted')


def test_orphans_and_unknown_apis() -> None:
    unknown = {"api_key": None, "api": None, "api_version": None, "client_id": None, "body": None}
    orphan = message("response", **unknown, latency_ns=None, problems=(Problem("orphan-response", "no request"),))
    lines = text(orphan, message(api_key=200, api=None, api_version=3, body=None)).splitlines()
    assert lines[1].split("  ")[2].strip() == "?"
    assert lines[2].strip() == "orphan-response: no request"
    assert "API 200 v3" in lines[3]
    assert lines[1] == lines[1].rstrip()


def test_the_end_of_an_exchange_has_no_line() -> None:
    assert text(Exchange(1, 1, "unanswered", message(), None)) == ""


def test_the_version_that_a_body_was_read_as_is_reported() -> None:
    body = {"error_code": 35, "api_keys": []}
    error = ErrorCode(35, "UNSUPPORTED_VERSION", "error_code")
    shown = text(
        message("response", api_key=18, api="ApiVersions", api_version=4, body=body, body_version=0, errors=(error,))
    )
    assert shown.rstrip().endswith("UNSUPPORTED_VERSION; 0 APIs, read as v0")


def test_nothing_from_the_wire_reaches_the_terminal_as_it_is() -> None:
    evil = "\x1b]0;owned\x07\u202e\r\n\x9b2J"
    body = {
        "transactional_id": evil,
        "acks": 1,
        "timeout_ms": 0,
        "topic_data": [{"name": evil, "partition_data": [{"index": 0, "records": None}]}],
    }
    reported = {**PRODUCED, "responses": [{"name": evil, "partition_responses": [{"index": 0, "error_code": 7,
            "error_message": evil}]}]}  # fmt: skip
    error = ErrorCode(7, "REQUEST_TIMED_OUT", "responses[0].partition_responses[0].error_code")
    events = [
        message(client_id=evil, body=body, problems=(Problem("x", evil),)),
        message("response", body=reported, errors=(error,)),
        message(body={evil: evil, "list": [evil], "deep": [{evil: {evil: evil.encode()}}]}, raw=evil.encode()),
        message(client_id=evil.encode() + b"\xff", capture=evil),
        Problem("y", evil, capture=evil),
        SaslToken("request", 4, evil, evil.encode()),
    ]
    for verbosity in (0, 1, 2):
        shown = text(*events, verbosity=verbosity, captures=True)
        assert all(line.isprintable() for line in shown.split("\n"))
        assert "\\x1b]0;owned\\x07\\u202e\\x0d\\x0a\\x9b2J" in shown


def test_a_hostile_client_id_cannot_widen_its_column_without_bound() -> None:
    line = text(message(client_id="\x1b" * 5000)).splitlines()[1]
    assert len(line) < 140 + 2 * CLIENT_WIDTH


def test_captures_are_named_if_there_are_several() -> None:
    events = [message(), message(capture="b.pcap"), message(capture="b.pcap")]
    assert "b.pcap" not in text(*events)
    assert [line for line in text(*events, captures=True).splitlines() if line.startswith("capture")] == [
        "capture a.pcap",
        "capture b.pcap",
    ]


def test_a_stream_that_knows_no_arrows() -> None:
    shown = text(message(), message("response"), encoding="ascii")
    assert "10.0.0.5:51334 > 10.0.0.9:9092" in shown
    assert "10.0.0.5:51334 < 10.0.0.9:9092" in shown
    assert "\\u2026 +1" in text(message(client_id="x" * (CLIENT_WIDTH + 1)), encoding="ascii")


def test_the_caches_are_bounded() -> None:
    stream = io.BytesIO()
    sink = TextSink(stream)
    for number in range(LINE_CACHE + 500):
        sink.write(message(connection=number, client_id=f"c{number}", api_version=number))
    assert len(sink._ends.ready) <= LINE_CACHE
    assert len(sink._clients.ready) <= LINE_CACHE
    assert len(sink._apis.ready) <= LINE_CACHE


def test_a_connection_number_with_other_endpoints_shows_them() -> None:
    lines = text(message(), message(client=Endpoint("10.0.0.7", 1))).splitlines()
    assert "10.0.0.5:51334" in lines[1]
    assert "10.0.0.7:1 " in lines[2]


@pytest.mark.parametrize("width", [80, 120])
def test_verbose_adds_the_place_and_the_body_within_the_width(width: int) -> None:
    shown = text(message(header_tags=((3, b"abc"),)), verbosity=1, width=width).splitlines()
    assert shown[2] == "    conn 3, packets 120-121, 512 bytes"
    assert shown[3] == '    header tag 3: "abc"'
    assert all(len(line) <= width for line in shown[2:])
    response = text(message("response"), verbosity=1).splitlines()
    assert response[2].endswith(", 80 bytes, took 1.40 ms")


def test_verbose_shows_what_could_not_be_decoded() -> None:
    assert "    raw: 0xff00" in text(message(raw=b"\xff\x00"), verbosity=1)
    assert "    raw: [12 bytes redacted]" in text(message(raw_redacted=12), verbosity=1)
