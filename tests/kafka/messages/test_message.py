"""Headers, bodies and the protocol's special cases that concern a single message."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.messages.message import (
    MAX_HEADER_TAGS,
    Decoded,
    decode_request,
    decode_response,
    read_tags,
    request_header,
)
from kafkasniff.kafka.schema.context import MAX_PROBLEMS, DecodeOptions
from tests.craft.kafka_bytes import unsigned_varint


def test_tag_sections_are_bounded() -> None:
    one = b"\x05\x00"
    most = unsigned_varint(MAX_HEADER_TAGS) + one * MAX_HEADER_TAGS
    read = read_tags(most, 0, len(most))
    assert read is not None
    assert len(read[0]) == MAX_HEADER_TAGS
    more = unsigned_varint(MAX_HEADER_TAGS + 1) + one * (MAX_HEADER_TAGS + 1)
    assert read_tags(more, 0, len(more)) is None


SHOW = DecodeOptions(show_secrets=True)


def request(key: int, version: int, body: bytes, *, client: bytes | None = b"app", tags: bytes = b"\x00") -> bytes:
    """A crafted request: header 2 if there are `tags`, header 1 if they are empty."""
    length = -1 if client is None else len(client)
    return struct.pack(">hhih", key, version, 7, length) + (client or b"") + tags + body


def whole_request(data: bytes, options: DecodeOptions = SHOW) -> Decoded:
    """Decode it surrounded by other bytes."""
    return decode_request(b"\xff\x00" + data + b"\x01\x02\x03", 2, 2 + len(data), options)


def whole_response(data: bytes, key: int, version: int, options: DecodeOptions = SHOW) -> Decoded:
    return decode_response(b"\xff\x00" + data + b"\x01\x02\x03", 2, 2 + len(data), key, version, options)


def kinds(decoded: Decoded) -> list[str]:
    return [problem.kind for problem in decoded.problems]


# Headers


def test_header_cut() -> None:
    data = request(18, 2, b"", tags=b"")
    for size in range(len(data)):
        decoded = whole_request(data[:size])
        assert (decoded.header, decoded.body, decoded.raw) == (None, None, None)
        assert kinds(decoded) == ["header-truncated"]
        assert request_header(data[:size] + b"\x00" * 9, 0, size) is None


NEWER, UNKNOWN = struct.pack(">hhihB", 18, 6, 1, -1, 0), struct.pack(">hhih", 4242, 0, 1, -1)


@pytest.mark.parametrize("header", [NEWER, UNKNOWN, struct.pack(">hhih", 18, 2, 1, 2) + b"a\0"])
def test_headers_that_are_taken_only_where_one_is_expected(header: bytes) -> None:
    assert request_header(header, 0, len(header)) is not None
    assert request_header(header, 0, len(header), strict=True) is None


# Unknown keys and versions


def test_an_unknown_api_is_read_with_header_1() -> None:
    decoded = whole_request(request(4242, 1, b"body", tags=b""))
    assert decoded.header is not None
    assert (decoded.api_key, decoded.api, decoded.client_id, decoded.header["client_id"]) == (4242, None, "app", "app")
    assert (decoded.body, decoded.raw, kinds(decoded)) == (None, b"body", ["api-unknown"])
    response = whole_response(struct.pack(">i", 3) + b"xyz", 4242, 1)
    assert (response.header, response.body, response.raw) == ({"correlation_id": 3}, None, b"xyz")


def test_unknown_version_has_the_header_of_the_last_known_ones() -> None:
    decoded = whole_request(request(0, 14, b"new", tags=b"\x01\x00\x01x"))
    assert (decoded.api, decoded.api_version, decoded.header_tags, decoded.body) == ("Produce", 14, ((0, b"x"),), None)
    assert decoded.raw == b"new"
    assert kinds(decoded) == ["version-unknown"]
    # SaslHandshake has no flexible version: its header has no tags.
    assert whole_request(request(17, 2, b"\x00\x00", tags=b"")).raw == b"\x00\x00"
    response = whole_response(b"\x00\x00\x00\x01\x00new", 0, 14)
    assert (response.raw, response.body) == (b"new", None)
    assert whole_response(b"\x00\x00\x00\x01new", 18, 7).raw == b"new"


# ApiVersions and error 35

V0_REFUSAL = struct.pack(">ihi", 7, 35, 1) + struct.pack(">hhh", 18, 0, 3)


@pytest.mark.parametrize(
    ("more", "api_keys", "problems"),
    [
        (b"", [{"api_key": 18, "min_version": 0, "max_version": 3}], []),
        (b"\x00\x00\x01\x00", [{"api_key": 18, "min_version": 0, "max_version": 3}], ["trailing-bytes"]),
        (None, [{"api_key": 18, "min_version": 0}], ["array-too-long"]),
    ],
    ids=["whole", "longer", "cut"],
)
def test_refused_api_versions_is_read_as_version_0(
    more: bytes | None, api_keys: list[dict[str, int]], problems: list[str]
) -> None:
    """As far as possible, if it fits no version."""
    for asked in (3, 1, 2, 4, 5, 99) if more == b"" else (3,):
        data = V0_REFUSAL[:-1] if more is None else V0_REFUSAL + more
        decoded = whole_response(data, 18, asked)
        assert (decoded.api_version, decoded.body_version) == (asked, 0)
        assert decoded.body == {"error_code": 35, "api_keys": api_keys}
        assert [(error.name, error.path) for error in decoded.errors] == [("UNSUPPORTED_VERSION", "error_code")]
        assert kinds(decoded) == problems
        assert decoded.raw == (data[4:] if more is None else None)


# Bodies that are slightly wrong


@pytest.mark.parametrize(
    ("key", "version", "data", "body", "problems"),
    [
        # librdkafka requests all topics with Metadata v12 and four bytes too many; old clients pad ApiVersions v0.
        (
            *(3, 12, b"\x00\x01\x00\x00" + b"\x00" * 4),
            {"topics": None, "allow_auto_topic_creation": True, "include_topic_authorized_operations": False},
            [("trailing-bytes", 18)],
        ),
        (18, 0, b"\x00\x00", {}, [("trailing-bytes", 13)]),
        # Metadata v0 has no null for topics, and requests all topics with an empty list.
        (3, 0, b"\xff\xff\xff\xff", {"topics": None}, [("null-not-allowed", 13)]),
        (3, 1, b"\xff\xff\xff\xff", {"topics": None}, []),
        (3, 0, b"\x00\x00\x00\x00", {"topics": []}, []),
        (3, 0, struct.pack(">ih", 1, 2) + b"\xc3\x28", {"topics": [{"name": b"\xc3\x28"}]}, [("string-not-utf8", 19)]),
        (3, 4, struct.pack(">iB", 0, 2), {"topics": [], "allow_auto_topic_creation": True}, [("bool-not-0-or-1", 17)]),
        # Unknown tags are kept at every depth.
        (
            *(0, 9, b"\x00\xff\xff\x00\x00\x00\x05\x02" + b"\x02t\x01\x01\x09\x02hi" + b"\x01\x81\x01\x00"),
            {
                "transactional_id": None,
                "acks": -1,
                "timeout_ms": 5,
                "topic_data": [{"name": "t", "partition_data": [], "_unknown_tags": [{"tag": 9, "base64": "aGk="}]}],
                "_unknown_tags": [{"tag": 129, "base64": ""}],
            },
            [],
        ),
        # Structs without fields still have a tag section; null requests all users.
        (74, 0, b"\x00", {}, []),
        (74, 0, b"", {}, [("body-truncated", 14)]),
        (50, 0, b"\x00\x00", {"users": None}, []),
    ],
)
def test_odd_bodies(key: int, version: int, data: bytes, body: dict[str, Any], problems: list[tuple[str, int]]) -> None:
    found = api(key)
    assert found is not None
    decoded = whole_request(request(key, version, data, tags=header_tags(found, version)))
    assert decoded.body == body
    assert [(problem.kind, problem.offset) for problem in decoded.problems] == problems
    assert (decoded.raw is None) is (not problems or problems[0][0] != "body-truncated")


@pytest.mark.parametrize(
    ("version", "body", "kind"),
    [
        (0, struct.pack(">i", 2**31 - 1), "array-too-long"),
        (0, struct.pack(">i", -2), "length-negative"),
        (0, struct.pack(">ih", 1, 5), "body-truncated"),
        (0, struct.pack(">ih", 1, -2), "length-negative"),
        (0, b"\x00\x00", "body-truncated"),
        (9, b"\xff\xff\xff\xff\xff\xff", "varint-too-long"),
        (9, b"\xff\xff\xff\xff\x0f", "array-too-long"),
        (9, b"\x01\x00\x00\x00\xff\xff\x03", "array-too-long"),
        (9, b"\x01\x00\x00\x00\x01\x05\x40", "body-truncated"),
    ],
)
def test_kinds_of_failure(version: int, body: bytes, kind: str) -> None:
    decoded = whole_request(request(3, version, body, tags=b"\x00" if version == 9 else b""))
    assert kinds(decoded) == [kind]
    assert decoded.raw == body
    assert decoded.body is not None


# Secrets


def test_secrets_are_withheld_unless_shown() -> None:
    data = request(36, 0, struct.pack(">i", 6) + b"\x00u\x00pwd", tags=b"")
    assert whole_request(data, DecodeOptions()).body == {"auth_bytes": {"redacted": 6}}
    assert whole_request(data).body == {"auth_bytes": b"\x00u\x00pwd"}
    cut = whole_request(data[:-1], DecodeOptions())
    assert (cut.raw, cut.raw_redacted, cut.body) == (None, 9, {})
    assert whole_request(data[:-1]).raw == data[13:-1]


def test_raw_of_an_unknown_version_is_withheld_where_known_ones_have_secrets() -> None:
    decoded = whole_request(request(36, 9, b"token"), DecodeOptions())
    assert (decoded.raw, decoded.raw_redacted) == (None, 5)
    assert b"token" not in repr(decoded).encode()


def header_tags(found: Any, version: int) -> bytes:
    return b"\x00" if found.request_header(version) == 2 else b""


def string(data: bytes) -> bytes:
    return struct.pack(">h", len(data)) + data


def test_configuration_values_are_withheld_by_name() -> None:
    entries = [
        (b"retention.ms", b"1000"),
        (b"listener.name.internal.ssl.keystore.password", b"hunter2"),
        (b"SASL.jaas.config", b"x"),
    ]
    # An AlterConfigs request v0.
    packed = b"".join(string(name) + string(value) for name, value in entries)
    data = request(33, 0, struct.pack(">ibh1si", 1, 2, 1, b"t", len(entries)) + packed + b"\x00", tags=b"")
    for options, values in (
        (DecodeOptions(), ["1000", {"redacted": 7}, {"redacted": 1}]),
        (SHOW, ["1000", "hunter2", "x"]),
    ):
        decoded = whole_request(data, options)
        assert decoded.body is not None
        assert [config["value"] for config in decoded.body["resources"][0]["configs"]] == values


def test_described_configs_are_withheld_where_the_broker_says_so() -> None:
    def config(name: bytes, value: bytes, sensitive: int) -> bytes:
        text = string(name) + string(value)
        return text + struct.pack(">BbBi", 0, 1, sensitive, 1) + text + b"\x05"

    body = struct.pack(">iihhbh1si", 0, 1, 0, -1, 2, 1, b"t", 2)
    plain, hidden = config(b"a", b"plain", 0), config(b"b", b"hidden", 1)
    decoded = whole_response(b"\x00\x00\x00\x01" + body + plain + hidden, 32, 1, DecodeOptions())
    assert decoded.problems == ()
    assert decoded.body is not None
    first, second = decoded.body["results"][0]["configs"]
    assert (first["value"], first["synonyms"][0]["value"]) == ("plain", "plain")
    assert (second["value"], second["synonyms"][0]["value"]) == ({"redacted": 6}, {"redacted": 6})
    # Cut before the field that says whether the value is sensitive: it counts as sensitive.
    for cut in range(1, len(hidden)):
        part = whole_response(b"\x00\x00\x00\x01" + body + plain + hidden[:-cut], 32, 1, DecodeOptions())
        assert "hidden" not in repr(part)
        assert part.raw is None


def test_problems_of_a_message_are_bounded_and_its_end_is_reported() -> None:
    # 1,000 topic names that are not UTF-8, then a cut.
    body = struct.pack(">i", 1001) + (struct.pack(">h", 2) + b"\xff\xff") * 1000 + b"\x00\x02\xff"
    decoded = whole_request(request(3, 0, body, tags=b""))
    assert kinds(decoded) == ["string-not-utf8"] * MAX_PROBLEMS + ["body-truncated", "more-problems"]
