"""Headers, bodies and the protocol's special cases that concern a single message."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.messages.message import Decoded, DecodeOptions, decode_request, decode_response
from kafkasniff.kafka.messages.message_header import RequestHeader, request_header
from kafkasniff.kafka.schema.context import MAX_PROBLEMS, DecodeContext
from kafkasniff.kafka.schema.data_schemas import data_schema
from kafkasniff.kafka.schema.walker import walk
from tests.craft import kafka_bytes
from tests.kafka.encode import Encoder, Plan

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


def layout_of(key: int, version: int, direction: str) -> Any:
    found = api(key)
    assert found is not None
    return getattr(found, direction)(version).root


# Headers


def test_header_1_and_2() -> None:
    decoded = whole_request(request(12, 3, b"\x00\x01g\x00\x00\x00\x02\x00\x01m\xff\xff", tags=b""))
    assert decoded.header == {
        "request_api_key": 12,
        "request_api_version": 3,
        "correlation_id": 7,
        "client_id": "app",
    }
    assert (decoded.api_key, decoded.api, decoded.api_version, decoded.correlation_id) == (12, "Heartbeat", 3, 7)
    assert decoded.body == {"group_id": "g", "generation_id": 2, "member_id": "m", "group_instance_id": None}
    assert decoded.problems == ()
    flexible = whole_request(request(12, 4, b"\x02g\x00\x00\x00\x02\x02m\x00\x00"))
    assert flexible.body == decoded.body
    assert flexible.problems == ()


def test_client_id_keeps_its_int16_length_in_header_2_and_may_be_null() -> None:
    decoded = whole_request(request(18, 3, b"\x02a\x02b\x00", client=None))
    assert decoded.client_id is None
    assert decoded.body == {"client_software_name": "a", "client_software_version": "b"}
    assert whole_request(request(18, 3, b"\x02a\x02b\x00", client=b"")).client_id == ""


def test_controlled_shutdown_0_has_no_client_id() -> None:
    decoded = whole_request(struct.pack(">hhii", 7, 0, 5, 1001))
    assert decoded.header == {"request_api_key": 7, "request_api_version": 0, "correlation_id": 5}
    assert decoded.body == {"broker_id": 1001}
    assert decoded.problems == ()
    assert request_header(struct.pack(">hhi", 7, 0, 5), 0, 8) == RequestHeader(7, 0, 5, None, 8)


def test_header_tags() -> None:
    decoded = whole_request(request(18, 3, b"\x02a\x02b\x00", tags=b"\x02\x00\x01x\x81\x01\x00"))
    assert decoded.header_tags == ((0, b"x"), (129, b""))
    assert decoded.problems == ()
    assert kinds(whole_request(request(18, 3, b"\x02a\x02b\x00", tags=b"\x02\x01\x01x\x00\x00"))) == [
        "tags-not-ascending"
    ]
    response = whole_response(
        b"\x00\x00\x00\x09" + b"\x01\x05\x02ab" + b"\x00\x00\x00\x00" + b"\x00\x00" + b"\x00", 12, 4
    )
    assert response.header_tags == ((5, b"ab"),)
    assert response.body == {"throttle_time_ms": 0, "error_code": 0}


def test_api_versions_responses_have_header_0_in_every_version() -> None:
    # Flexible body, but no tag section in the header.
    decoded = whole_response(struct.pack(">ihB", 9, 0, 1) + struct.pack(">i", 3) + b"\x00", 18, 3)
    assert decoded.header == {"correlation_id": 9}
    assert decoded.body == {"error_code": 0, "api_keys": [], "throttle_time_ms": 3}
    assert decoded.problems == ()


def test_client_id_that_is_not_utf8() -> None:
    decoded = whole_request(request(18, 2, b"", client=b"\xff\xfe", tags=b""))
    assert decoded.client_id == b"\xff\xfe"
    assert decoded.header is not None
    assert decoded.header["client_id"] == b"\xff\xfe"
    assert decoded.body == {}
    assert [(problem.kind, problem.offset) for problem in decoded.problems] == [("string-not-utf8", 10)]


@pytest.mark.parametrize("name", ["RequestHeader", "ResponseHeader"])
def test_headers_are_what_headers_txt_says(name: str) -> None:
    rng = random.Random(3)
    for version in (1, 2) if name == "RequestHeader" else (0, 1):
        schema = data_schema(name, version)
        assert schema is not None
        for _ in range(30):
            raw, expected = Encoder(Plan(rng, tagged=False, unknown_tags=False)).body(schema.root)
            if name == "ResponseHeader":
                key, api_version = (12, 4) if version else (12, 3)
                assert decode_response(raw, 0, len(raw), key, api_version).header == expected
                continue
            # Any key and version with this header.
            head = struct.pack(">hh", 12, 4 if version == 2 else 3)
            expected |= {"request_api_key": 12, "request_api_version": 4 if version == 2 else 3}
            raw = head + raw[4:]
            assert decode_request(raw, 0, len(raw)).header == expected
            found = request_header(raw, 0, len(raw))
            assert found is not None
            assert (found.length, found.client_id) == (len(raw), expected["client_id"])


def test_header_versions_of_all_pairs() -> None:
    exceptions = {}
    for key in api_keys():
        found = api(key)
        assert found is not None
        for version in found.versions:
            flexible = found.flexible_since is not None and version >= found.flexible_since
            if (found.request_header(version), found.response_header(version)) != (1 + flexible, int(flexible)):
                exceptions[found.name, version] = (found.request_header(version), found.response_header(version))
    assert exceptions == {("ControlledShutdown", 0): (0, 0)} | {
        ("ApiVersions", version): (2, 0) for version in (3, 4, 5)
    }


@pytest.mark.parametrize("size", range(13))
def test_header_cut(size: int) -> None:
    data = request(18, 2, b"", tags=b"")
    assert len(data) == 13
    decoded = whole_request(data[:size])
    assert (decoded.header, decoded.body, decoded.raw) == (None, None, None)
    assert kinds(decoded) == ["header-truncated"]
    assert request_header(data[:size] + b"\x00" * 9, 0, size) is None


# Unknown keys and versions


def test_unknown_key_is_read_with_header_1() -> None:
    decoded = whole_request(request(4242, 1, b"body", tags=b""))
    assert (decoded.api_key, decoded.api, decoded.client_id) == (4242, None, "app")
    assert decoded.header is not None
    assert decoded.header["client_id"] == "app"
    assert (decoded.body, decoded.raw) == (None, b"body")
    assert kinds(decoded) == ["api-unknown"]
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


@pytest.mark.parametrize("asked", [1, 2, 3, 4, 5, 99])
def test_refused_api_versions_is_read_as_version_0(asked: int) -> None:
    decoded = whole_response(V0_REFUSAL, 18, asked)
    assert (decoded.api_version, decoded.body_version) == (asked, 0)
    assert decoded.body == {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 3}]}
    assert [(error.name, error.path) for error in decoded.errors] == [("UNSUPPORTED_VERSION", "error_code")]
    assert decoded.problems == ()


def test_refusal_in_the_version_asked_for() -> None:
    decoded = whole_response(struct.pack(">ihB", 7, 35, 1) + struct.pack(">i", 0) + b"\x00", 18, 3)
    assert (decoded.body_version, decoded.problems) == (None, ())
    assert decoded.body == {"error_code": 35, "api_keys": [], "throttle_time_ms": 0}
    assert whole_response(V0_REFUSAL, 18, 0).body_version is None


def test_refusal_that_fits_no_version_is_read_as_0_as_far_as_possible() -> None:
    decoded = whole_response(V0_REFUSAL + b"\x00\x00\x01\x00", 18, 3)
    assert decoded.body_version == 0
    assert decoded.body == {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 3}]}
    assert kinds(decoded) == ["trailing-bytes"]
    cut = whole_response(V0_REFUSAL[:-1], 18, 3)
    assert cut.body == {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0}]}
    assert (cut.body_version, cut.raw) == (0, V0_REFUSAL[4:-1])
    assert kinds(cut) == ["array-too-long"]


# Bodies that are slightly wrong


def test_trailing_bytes_are_a_problem_and_the_body_is_kept() -> None:
    # librdkafka requests all topics with Metadata v12 and four bytes too many; old clients pad ApiVersions v0.
    decoded = whole_request(request(3, 12, b"\x00\x01\x00\x00" + b"\x00" * 4))
    assert decoded.body == {
        "topics": None,
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": False,
    }
    (problem,) = decoded.problems
    assert (problem.kind, problem.offset, problem.bytes) == ("trailing-bytes", 8 + 2 + 3 + 1 + 4, 4)
    assert decoded.raw is None
    old = whole_request(request(18, 0, b"\x00\x00", tags=b""))
    assert (old.body, kinds(old)) == ({}, ["trailing-bytes"])


def test_null_where_it_is_not_allowed() -> None:
    # Metadata v0 has no null for topics.
    decoded = whole_request(request(3, 0, b"\xff\xff\xff\xff", tags=b""))
    assert decoded.body == {"topics": None}
    assert [(problem.kind, problem.offset) for problem in decoded.problems] == [("null-not-allowed", 13)]
    assert decoded.raw is None
    assert whole_request(request(3, 1, b"\xff\xff\xff\xff", tags=b"")).problems == ()
    # Metadata v0 requests all topics with an empty list.
    assert whole_request(request(3, 0, b"\x00\x00\x00\x00", tags=b"")).body == {"topics": []}


def test_string_that_is_not_utf8() -> None:
    decoded = whole_request(request(3, 0, struct.pack(">ih", 1, 2) + b"\xc3\x28", tags=b""))
    assert decoded.body == {"topics": [{"name": b"\xc3\x28"}]}
    assert [(problem.kind, problem.offset) for problem in decoded.problems] == [("string-not-utf8", 19)]


def test_bool_other_than_0_and_1_is_true() -> None:
    decoded = whole_request(request(3, 4, struct.pack(">iB", 0, 2), tags=b""))
    assert decoded.body == {"topics": [], "allow_auto_topic_creation": True}
    assert [(problem.kind, problem.offset) for problem in decoded.problems] == [("bool-not-0-or-1", 17)]


def test_unknown_tags_are_kept_at_every_depth() -> None:
    topic = b"\x02t" + b"\x01" + b"\x01\x09\x02hi"
    decoded = whole_request(request(0, 9, b"\x00\xff\xff\x00\x00\x00\x05\x02" + topic + b"\x01\x81\x01\x00"))
    assert decoded.body == {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 5,
        "topic_data": [{"name": "t", "partition_data": [], "_unknown_tags": [{"tag": 9, "base64": "aGk="}]}],
        "_unknown_tags": [{"tag": 129, "base64": ""}],
    }
    assert decoded.problems == ()


def produce_response(tags: bytes) -> Decoded:
    """A Produce response v10 with these `tags` in its partition (count included)."""
    partition = struct.pack(">ihqqq", 0, 0, 1, -1, 0) + b"\x01" + b"\x00" + tags
    return whole_response(
        b"\x00\x00\x00\x01\x00" + b"\x02\x02t\x02" + partition + b"\x00" + b"\x00\x00\x00\x00\x00", 0, 10
    )


def partition_of(decoded: Decoded) -> dict[str, Any]:
    assert decoded.body is not None
    partition: dict[str, Any] = decoded.body["responses"][0]["partition_responses"][0]
    return partition


def test_known_tag_is_present_only_if_sent() -> None:
    assert "current_leader" not in partition_of(produce_response(b"\x00"))
    decoded = produce_response(b"\x01\x00\x09" + struct.pack(">ii", 3, 4) + b"\x00")
    assert partition_of(decoded)["current_leader"] == {"leader_id": 3, "leader_epoch": 4}
    assert decoded.problems == ()


def test_tag_whose_size_disagrees_with_its_field() -> None:
    longer = produce_response(b"\x01\x00\x0b" + struct.pack(">ii", 3, 4) + b"\x00zz")
    assert partition_of(longer)["current_leader"] == {"leader_id": 3, "leader_epoch": 4}
    assert kinds(longer) == ["tag-size-mismatch"]
    shorter = produce_response(b"\x01\x00\x05" + struct.pack(">i", 3) + b"\x00")
    assert partition_of(shorter)["_unknown_tags"] == [{"tag": 0, "base64": "AAAAAwA="}]
    assert "current_leader" not in partition_of(shorter)
    assert kinds(shorter) == ["tag-size-mismatch"]
    # In both cases, reading continued after the declared size.
    assert longer.body is not None
    assert shorter.body is not None
    assert longer.body["throttle_time_ms"] == shorter.body["throttle_time_ms"] == 0


def test_tags_that_do_not_ascend() -> None:
    assert kinds(produce_response(b"\x02\x09\x00\x09\x00")) == ["tags-not-ascending"]
    decoded = produce_response(b"\x02\x09\x01a\x07\x01b")
    assert kinds(decoded) == ["tags-not-ascending"]
    assert partition_of(decoded)["_unknown_tags"] == [{"tag": 9, "base64": "YQ=="}, {"tag": 7, "base64": "Yg=="}]


def test_structs_without_fields_still_have_a_tag_section() -> None:
    # ListConfigResources v0 has no fields; DescribeUserScramCredentials requests all users with null.
    assert layout_of(74, 0, "request").fields == ()
    assert whole_request(request(74, 0, b"\x00")).body == {}
    assert kinds(whole_request(request(74, 0, b""))) == ["body-truncated"]
    assert whole_request(request(50, 0, b"\x00\x00")).body == {"users": None}


def test_failure_midway_keeps_the_complete_fields_before_it() -> None:
    topics = struct.pack(">ih1si", 1, 1, b"t", 2) + struct.pack(">iqi", 0, 5, 100) + struct.pack(">iq", 1, 6)
    body = struct.pack(">iii", -1, 500, 1) + topics
    decoded = whole_request(request(1, 0, body, tags=b""))
    assert decoded.body == {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "topics": [
            {
                "topic": "t",
                "partitions": [
                    {"partition": 0, "fetch_offset": 5, "partition_max_bytes": 100},
                    {"partition": 1, "fetch_offset": 6},
                ],
            }
        ],
    }
    (problem,) = decoded.problems
    assert (problem.kind, problem.offset) == ("body-truncated", 13 + len(body))
    assert decoded.raw == body
    assert "topics[0].partitions[1].partition_max_bytes" in problem.detail


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


def test_error_codes_with_their_paths() -> None:
    partitions = struct.pack(">i", 2) + struct.pack(">ihq", 0, 0, 9) + struct.pack(">ihq", 1, 6, -1)
    topic = struct.pack(">h1s", 1, b"t") + partitions
    decoded = whole_response(struct.pack(">ii", 7, 2) + topic + topic.replace(b"\x00\x06", b"\x03\xe7"), 0, 0)
    assert [(error.code, error.name, error.path) for error in decoded.errors] == [
        (6, "NOT_LEADER_OR_FOLLOWER", "responses[0].partition_responses[1].error_code"),
        (999, None, "responses[1].partition_responses[1].error_code"),
    ]


def test_flat_and_grouped_layouts_of_control_requests() -> None:
    # LeaderAndIsr, StopReplica and UpdateMetadata: flat partitions first, grouped by topic later.
    for key, flat, grouped in ((4, 1, 2), (5, 0, 3), (6, 4, 5)):
        names = {field.name for field in layout_of(key, flat, "request").fields}
        later = {field.name for field in layout_of(key, grouped, "request").fields}
        assert any(name.startswith("ungrouped_") for name in names)
        assert not any(name.startswith("ungrouped_") for name in later)


def test_fetch_snapshot_is_a_slice() -> None:
    piece = bytes(range(1, 100))
    partition = struct.pack(">ih", 0, 0) + struct.pack(">qiB", 10, 3, 0) + struct.pack(">qq", 4096, 1111)
    topics = b"\x02" + b"\x02m" + b"\x02" + partition + bytes([len(piece) + 1]) + piece + b"\x00" + b"\x00"
    data = b"\x00\x00\x00\x01\x00" + struct.pack(">ih", 0, 0) + topics + b"\x00"
    decoded = whole_response(data, 59, 0)
    assert decoded.problems == ()
    assert decoded.body is not None
    reported = {"leading_bytes": len(piece), "batches": [], "truncated_bytes": 0}
    assert decoded.body["topics"][0]["partitions"][0]["unaligned_records"] == reported
    # A snapshot holds credentials.
    cut = whole_response(data[:-1], 59, 0, DecodeOptions())
    assert (cut.raw, cut.raw_redacted) == (None, len(data) - 1 - 5)


def test_records_skipped() -> None:
    partition = struct.pack(">iii", 1, 0, 3) + b"\xff\xff\xff"
    body = struct.pack(">hiih1s", 1, 1000, 1, 1, b"t") + partition
    decoded = whole_request(request(0, 2, body, tags=b""), DecodeOptions(records="skip"))
    assert decoded.body is not None
    assert decoded.body["topic_data"][0]["partition_data"] == [{"index": 0, "records": None}]
    assert decoded.problems == ()


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


def test_all_fixed_secrets() -> None:
    marked = {
        (found.name, direction, field.name)
        for key in api_keys()
        if (found := api(key)) is not None
        for direction in ("request", "response")
        for version in found.versions
        for field in fields_of(layout_of(key, version, direction))
        if field.secret == "value"
    }
    assert marked == {
        ("SaslAuthenticate", "request", "auth_bytes"),
        ("SaslAuthenticate", "response", "auth_bytes"),
        ("CreateDelegationToken", "response", "hmac"),
        ("RenewDelegationToken", "request", "hmac"),
        ("ExpireDelegationToken", "request", "hmac"),
        ("DescribeDelegationToken", "response", "hmac"),
        ("AlterUserScramCredentials", "request", "salt"),
        ("AlterUserScramCredentials", "request", "salted_password"),
        ("Envelope", "request", "request_data"),
        ("Envelope", "request", "request_principal"),
        ("Envelope", "response", "response_data"),
        ("FetchSnapshot", "response", "unaligned_records"),
    }


def fields_of(struct_: Any) -> Any:
    for field in (*struct_.fields, *struct_.tagged):
        yield field
        if field.struct is not None:
            yield from fields_of(field.struct)


@pytest.mark.parametrize("key", [36, 38, 39, 40, 41, 51, 58, 59])
def test_no_secret_survives_anywhere_in_what_is_decoded(key: int) -> None:
    """Generated messages, whole, cut and changed: the result contains no bytes of their secrets."""
    rng = random.Random(key)
    found = api(key)
    assert found is not None
    for version in found.versions:
        for direction in ("request", "response"):
            root = layout_of(key, version, direction)
            if not root.secrets:
                continue
            encoder = Encoder(Plan(rng, nulls=False, tagged=True, unknown_tags=True, count=1))
            raw, expected = encoder.body(root)
            secrets = [value for value in secret_values(root, expected) if len(value) > 3]
            for cut in [len(raw), *(rng.randrange(len(raw) + 1) for _ in range(20))]:
                if direction == "request":
                    decoded = whole_request(
                        request(key, version, raw[:cut], tags=header_tags(found, version)), DecodeOptions()
                    )
                else:
                    head = b"\x00\x00\x00\x01" + b"\x00" * found.response_header(version)
                    decoded = whole_response(head + raw[:cut], key, version, DecodeOptions())
                kept = [*byte_strings(decoded.body), decoded.raw or b""]
                assert not any(secret in text or text[:4] == secret[:4] for secret in secrets for text in kept)


def header_tags(found: Any, version: int) -> bytes:
    return b"\x00" if found.request_header(version) == 2 else b""


def secret_values(root: Any, value: Any) -> Any:
    for field in (*root.fields, *root.tagged):
        inner = value.get(field.name)
        if field.secret == "value" and inner:
            yield inner
        elif field.struct is not None and inner:
            for one in inner if field.array else [inner]:
                yield from secret_values(field.struct, one)


def byte_strings(value: Any) -> Any:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from byte_strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from byte_strings(inner)


def configs_request(entries: list[tuple[bytes, bytes]]) -> bytes:
    """An AlterConfigs request v0."""
    packed = b"".join(struct.pack(">h", len(n)) + n + struct.pack(">h", len(v)) + v for n, v in entries)
    return struct.pack(">ibh1si", 1, 2, 1, b"t", len(entries)) + packed


def test_configuration_values_are_withheld_by_name() -> None:
    entries = [
        (b"retention.ms", b"1000"),
        (b"listener.name.internal.ssl.keystore.password", b"hunter2"),
        (b"SASL.jaas.config", b"x"),
    ]
    data = request(33, 0, configs_request(entries) + b"\x00", tags=b"")
    decoded = whole_request(data, DecodeOptions())
    assert decoded.body is not None
    configs = decoded.body["resources"][0]["configs"]
    assert [config["value"] for config in configs] == ["1000", {"redacted": 7}, {"redacted": 1}]
    shown = whole_request(data)
    assert shown.body is not None
    assert [config["value"] for config in shown.body["resources"][0]["configs"]] == ["1000", "hunter2", "x"]


def test_described_configs_are_withheld_where_the_broker_says_so() -> None:
    def config(name: bytes, value: bytes, sensitive: int) -> bytes:
        synonym = struct.pack(">h", len(name)) + name + struct.pack(">h", len(value)) + value + b"\x05"
        text = struct.pack(">h", len(name)) + name + struct.pack(">h", len(value)) + value
        return text + struct.pack(">BbBi", 0, 1, sensitive, 1) + synonym

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


# Anything at all


@given(st.binary(max_size=200), st.integers(-40000, 40000), st.integers(-40000, 40000))
def test_no_bytes_raise(data: bytes, key: int, version: int) -> None:
    for options in (DecodeOptions(), SHOW):
        decode_request(data, 0, len(data), options)
        decode_response(data, 0, len(data), key, version, options)
    request_header(data, 0, len(data))
    request_header(data, 0, len(data), strict=True)


@given(st.data())
def test_changed_messages_never_raise(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(api_keys()))
    found = api(key)
    assert found is not None
    version = data.draw(st.sampled_from(list(found.versions)))
    rng = random.Random(data.draw(st.integers(0, 1 << 32)))
    raw, _ = Encoder(Plan(rng)).body(layout_of(key, version, "request"))
    message = bytearray(request(key, version, raw, tags=header_tags(found, version)))
    for position in data.draw(st.lists(st.integers(0, len(message) - 1), max_size=4)):
        message[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(message)))
    decoded = whole_request(bytes(message[:cut]))
    # The problem of an embedded message names its field.
    unread = [one for one in decoded.problems if one.detail.startswith("not a header")]
    assert (decoded.header is None) == bool(unread)
    assert all(problem.offset is None or 0 <= problem.offset <= cut for problem in decoded.problems)
    assert len(decoded.problems) <= MAX_PROBLEMS + 3
    if not decoded.problems:
        header = request_header(bytes(message[:cut]), 0, cut)
        assert header is not None
        assert header.correlation_id == decoded.correlation_id


# The framer's question


def test_problems_of_a_message_are_bounded_and_its_end_is_reported() -> None:
    # 1,000 topic names that are not UTF-8, then a cut.
    body = struct.pack(">i", 1001) + (struct.pack(">h", 2) + b"\xff\xff") * 1000 + b"\x00\x02\xff"
    decoded = whole_request(request(3, 0, body, tags=b""))
    assert kinds(decoded) == ["string-not-utf8"] * MAX_PROBLEMS + ["body-truncated", "more-problems"]


def test_the_walker_reads_odd_messages() -> None:
    root = layout_of(3, 0, "request")
    context = DecodeContext(SHOW)
    assert walk(root, b"\x00\x00\x00\x01\x00\x01\xff", 0, 7, context).body == {"topics": [{"name": b"\xff"}]}


def test_a_produce_request_has_no_cut_batches() -> None:
    batch = kafka_bytes.record_batch([kafka_bytes.record(0, b"k", b"v")])
    for extra, kinds in ((b"", []), (batch[:-1], ["records-truncated"])):
        frame = kafka_bytes.produce_request(1, "topic", batch + extra)
        decoded = decode_request(frame, 4, len(frame))
        assert [problem.kind for problem in decoded.problems] == kinds
        assert decoded.body is not None
        assert decoded.body["topic_data"][0]["partition_data"][0]["records"]["truncated_bytes"] == len(extra)
