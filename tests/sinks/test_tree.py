from __future__ import annotations

import io
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.sinks.text import PIECE_CHARACTERS, TextSink
from kafkasniff.sinks.tree import VALUE_WIDTH, _Tree, body_tree, bytes_dump, scalar_text
from kafkasniff.text.paint import COLOUR, PLAIN, Paint
from tests.sinks.messages import BATCH, message


def tree(body: dict[str, Any], *, records: bool = False, width: int = 80, kind: str = "request", **fields: Any) -> str:
    return "\n".join(body_tree(message(kind, body=body, **fields), PLAIN, records=records, width=width))


RECORDS = {
    "batches": [
        {
            "base_offset": 7,
            "records": [{"offset": 7, "timestamp": 1_700_000_000_000, "key": b"k", "value": None, "headers": []}],
        }
    ],
    "truncated_bytes": 0,
}
PRODUCE = {
    "transactional_id": None,
    "acks": -1,
    "timeout_ms": 30000,
    "topic_data": [
        {"name": "orders", "partition_data": [{"index": 0, "records": RECORDS}, {"index": 1, "records": None}]}
    ],
}


def test_a_body_with_its_records() -> None:
    assert tree(PRODUCE, records=True) == (
        "    transactional_id: null  acks: -1 (ALL)  timeout_ms: 30000\n"
        "    topic_data: [1]\n"
        '      - name: "orders"\n'
        "        partition_data: [2]\n"
        "          - index: 0\n"
        "            records:\n"
        "              batches: [1]\n"
        "                - base_offset: 7\n"
        "                  records: [1]\n"
        "                    - offset: 7\n"
        "                      timestamp: 1700000000000 (2023-11-14T22:13:20.000Z)\n"
        '                      key: "k"  value: null  headers: []\n'
        "              truncated_bytes: 0\n"
        "          - index: 1  records: null"
    )


def test_records_are_left_out_unless_asked_for() -> None:
    shown = tree(PRODUCE)
    assert "base_offset: 7" in shown
    assert "offset: 7  " not in shown
    assert "records: [1]" not in shown


def test_names_of_errors_and_enums_stand_beside_their_codes() -> None:
    body = {"throttle_time_ms": 0, "error_code": 0, "error_message": None, "endpoint_type": 2, "cluster_id": "x"}
    shown = tree(body, kind="response", api_key=60, api="DescribeCluster", api_version=2)
    assert "error_code: 0 (NONE)" in shown
    assert "endpoint_type: 2 (CONTROLLER)" in shown
    assert "error_code: 6 (NOT_LEADER_OR_FOLLOWER)" in tree({"error_code": 6}, api_key=None)
    assert "error_code: 999 (unknown error)" in tree({"error_code": 999}, api_key=None)


def test_timestamps_are_dates_and_codes_are_not() -> None:
    batch = {**BATCH, "max_timestamp": -1}
    shown = tree({"records": {"batches": [batch]}})
    assert "base_timestamp: 1700000000000 (2023-11-14T22:13:20.000Z)" in shown
    assert "max_timestamp: -1 " in shown + " "
    body = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -2}]}]}
    assert "timestamp: -2 (EARLIEST)" in tree(body, api_key=2, api="ListOffsets", api_version=7)


def test_the_layout_is_that_of_the_version_read() -> None:
    body = {"error_code": 35, "api_keys": []}
    shown = tree(body, kind="response", api_key=18, api="ApiVersions", api_version=9, body_version=0)
    assert shown == "    error_code: 35 (UNSUPPORTED_VERSION)  api_keys: []"


def test_scalars_of_an_array_share_lines() -> None:
    shown = tree({"replica_nodes": list(range(40))}, width=40)
    lines = shown.splitlines()
    assert lines[0] == "    replica_nodes: [40]"
    assert all(len(line) <= 40 for line in lines)
    numbers = "".join(lines[1:]).replace(" ", "").split(",")
    assert numbers == [str(number) for number in range(40)]


def test_wide_values_are_cut_and_their_length_reported() -> None:
    assert scalar_text("x" * (VALUE_WIDTH + 1234)) == '"' + "x" * VALUE_WIDTH + '"… +1234 bytes'
    assert scalar_text("ü" * (VALUE_WIDTH + 2)).endswith("… +4 bytes")
    assert bytes_dump(b"y" * 20, 16) == '"' + "y" * 16 + '"… +4 bytes'
    assert bytes_dump(b"\xff\x01\x02", 2) == "0xff01… +1 bytes"
    # A cut through a character does not make hex of text.
    assert bytes_dump(("a" + "ü" * 10).encode(), 4) == '"aü"… +18 bytes'
    assert bytes_dump("數".encode() * 3, 4) == '"數"… +6 bytes'


def test_values_of_every_kind() -> None:
    assert [scalar_text(value) for value in (None, True, False, 3, 1.5, b"", "", [], {})] == [
        "null", "true", "false", "3", "1.5", '""', '""', "[]", "{}",
    ]  # fmt: skip
    assert scalar_text({"redacted": 9}) == "[9 bytes redacted]"
    assert scalar_text('a"b') == '"a\\"b"'
    assert scalar_text(b"\xff") == "0xff"
    assert scalar_text(b"\x1b[0m") == '"\\x1b[0m"'


def test_empty_structs_in_an_array_have_a_line() -> None:
    assert tree({"list": [{}, {"a": 1}]}) == "    list: [2]\n      - {}\n      - a: 1"


def test_secrets_and_unknown_tags() -> None:
    body = {"auth_bytes": {"redacted": 17}, "_unknown_tags": [{"tag": 9, "base64": "AQI="}]}
    assert tree(body) == '    auth_bytes: [17 bytes redacted]\n    _unknown_tags: [1]\n      - tag: 9  base64: "AQI="'


def test_what_interprets_a_value_stands_behind_it() -> None:
    body = {"a": b"x", "b": 1, "_a": {"format": "consumer", "value": {"topics": ["t"]}}, "_c": 2}
    assert tree(body) == (
        '    a: "x"\n    _a:\n      format: "consumer"\n      value:\n        topics: [1]\n          "t"\n'
        "    b: 1  _c: 2"
    )


def test_sets_whose_names_are_noted_are_not_reported_twice() -> None:
    body = {"cluster_authorized_operations": 264, "_cluster_authorized_operations": ["READ", "DESCRIBE"]}
    reported = tree(body, kind="response", api_key=60, api_version=0)
    assert reported == "    cluster_authorized_operations: 264 (READ|DESCRIBE)"
    body = {"cluster_authorized_operations": 1 << 20, "_cluster_authorized_operations": ["bit 20"]}
    reported = tree(body, kind="response", api_key=60, api_version=0)
    assert (
        reported
        == '    cluster_authorized_operations: 1048576\n    _cluster_authorized_operations: [1]\n      "bit 20"'
    )


def test_colours_do_not_count_as_width() -> None:
    body = {f"field_{number}": number for number in range(30)}
    plain = list(body_tree(message(body=body), PLAIN, records=False, width=60))
    coloured = list(body_tree(message(body=body), COLOUR, records=False, width=60))
    assert len(plain) == len(coloured) > 1
    assert [line.replace(COLOUR.name, "").replace(COLOUR.reset, "") for line in coloured] == plain


@given(
    record=st.fixed_dictionaries(
        {
            "offset": st.integers(-(2**63), 2**63 - 1),
            "timestamp": st.integers(-5, 2**43),
            "key": st.none() | st.binary(max_size=9) | st.just({"redacted": 5}) | st.just({"length": 3}),
            "value": st.none() | st.binary(max_size=500) | st.text(max_size=300).map(str.encode),
            "headers": st.just([]),
        }
    ),
    width=st.integers(40, 200),
    paint=st.sampled_from([PLAIN, COLOUR]),
)
def test_a_plain_record_is_shown_like_any_struct(record: dict[str, Any], width: int, paint: Paint) -> None:
    record = {name: record[name] for name in ("offset", "timestamp", "key", "value", "headers")}
    tree = _Tree(paint, True, width)
    assert list(tree.record(record, 6)) == list(tree.struct(record, None, 6, "- "))


def test_lines_below_a_message_come_in_pieces() -> None:
    """Text of many records takes no more memory than some of its lines."""
    record = {"offset": 1, "timestamp": 2, "key": b"k", "value": bytes(1000), "headers": []}
    body = {"records": {"batches": [{"records": [record] * 3000}], "truncated_bytes": 0}}
    event = message(body=body)
    reported, pieces = TextSink(io.BytesIO(), verbosity=2)._in_pieces(event)
    assert reported
    sizes = [len(piece) for piece in pieces]
    assert sum(sizes) > 3000 * 1600
    assert max(sizes) < PIECE_CHARACTERS + 2000
