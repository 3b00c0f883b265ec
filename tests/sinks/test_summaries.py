from __future__ import annotations

import random
from typing import Any

import pytest

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.model import ErrorCode
from kafkasniff.sinks.summaries import summary
from kafkasniff.sinks.summaries.phrases import amount, count, few, named_partitions
from kafkasniff.sinks.tree import body_tree
from kafkasniff.text.paint import PLAIN
from tests.kafka.encode import Encoder, Plan
from tests.sinks.messages import BATCH, message

UUID = "75SKcp50RDefv02tDZAxuQ"


def request(key: int, body: dict[str, Any], version: int = 0) -> str:
    return summary(message(api_key=key, api_version=version, body=body), PLAIN)


def response(key: int, body: dict[str, Any], *errors: ErrorCode, version: int = 0) -> str:
    return summary(message("response", api_key=key, api_version=version, body=body, errors=errors), PLAIN)


def records(*batches: dict[str, Any]) -> dict[str, Any]:
    return {"batches": [{**BATCH, **batch} for batch in batches], "truncated_bytes": 0}


def produce(*partitions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"acks": 1, "topic_data": [{"name": "orders", "partition_data": list(partitions)}], **fields}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (produce({"index": 0, "records": records({})}), "orders-0 12 records 3.1 kB lz4, acks leader"),
        (produce({"index": 0, "records": None}, acks=0), "orders-0, acks none"),
        (produce({"index": 0, "records": records({"record_count": 1, "compression": "none"})}, acks=-1),
         "orders-0 1 record 3.1 kB, acks all"),
        (produce({"index": 0, "records": records({}, {"compression": "zstd"})}),
         "orders-0 24 records 6.2 kB lz4/zstd in 2 batches, acks leader"),
        (produce({"index": 0, "records": records({"record_count": None}, {})}),
         "orders-0 records 6.2 kB lz4 in 2 batches, acks leader"),
        (produce({"index": 0, "records": records()}), "orders-0 no records, acks leader"),
        (produce(*({"index": index, "records": None} for index in range(6))),
         "orders-0; orders-1; orders-2; +3 partitions, acks leader"),
        (produce({"index": 0, "records": None}, transactional_id="tx 1"),
         'orders-0, acks leader, transaction "tx 1"'),
        ({"acks": 7, "topic_data": [{"topic_id": UUID, "partition_data": [{"index": 1, "records": None}]}]},
         f"{UUID}-1, acks 7"),
    ],
)  # fmt: skip
def test_produce_requests(body: dict[str, Any], expected: str) -> None:
    assert request(0, body) == expected


def test_names_of_topics_are_preferred_to_ids() -> None:
    topic = {"topic_id": UUID, "_topic_name": "orders", "partition_data": [{"index": 1, "records": None}]}
    assert request(0, {"acks": 0, "topic_data": [topic]}) == "orders-1, acks none"


@pytest.mark.parametrize(
    ("key", "body", "expected"),
    [
        (1, {"session_id": 7, "session_epoch": 3, "topics": []}, "no changes, session 7"),
        (1, {"session_id": 7, "session_epoch": 3, "_session": {"partitions": 40}, "topics": []},
         "session 7: 40 partitions"),
        (1, {"session_id": 7, "session_epoch": 3, "_session": {"partitions": 1},
             "topics": [{"topic_id": UUID, "_topic_name": "t", "partitions": [{"partition": 0, "fetch_offset": 4}]}],
             "forgotten_topics_data": [{"topic_id": UUID, "partitions": [1]}]},
         "t-0 from 4, forgets 1 partition, session 7: 1 partition"),
        (1, {"session_id": 7, "session_epoch": -1, "topics": []}, "no changes, closes session 7"),
        (1, {"replica_id": 2, "isolation_level": 1, "topics": [{"topic": "a", "partitions": [
            {"partition": 0, "fetch_offset": 5}]}]}, "a-0 from 5, replica 2, read committed"),
        (1, {"replica_state": {"replica_id": 4}, "topics": [], "forgotten_topics_data": [
            {"topic": "a", "partitions": [0, 1]}]}, "no topics, forgets 2 partitions, replica 4"),
        (2, {"topics": [{"name": "a", "partitions": [{"partition_index": 0, "timestamp": -1},
            {"partition_index": 1, "timestamp": 99}]}]}, "a-0 latest; a-1 at time 99"),
        (3, {"topics": None}, "all topics"),
        (3, {"topics": [], "allow_auto_topic_creation": True}, "all topics"),
        (3, {"topics": [{"name": "a"}, {"topic_id": UUID, "name": None}]}, f"a, {UUID}"),
        (8, {"group_id": "g", "topics": [{"name": "a", "partitions": [
            {"partition_index": 0, "committed_offset": 9}]}]}, "group g, a-0 at 9"),
        (9, {"group_id": "g", "topics": None}, "group g, all partitions"),
        (9, {"groups": [{"group_id": "g", "topics": [{"name": "a", "partition_indexes": [3, 0]}]}]}, "group g, a-3,0"),
        (10, {"key": "g"}, "group g"),
        (10, {"key_type": 1, "coordinator_keys": ["t", "u"]}, "transaction t, u"),
        (11, {"group_id": "g", "member_id": "", "protocols": [{"name": "range"}]}, "group g, new member, range"),
        (12, {"group_id": "g", "generation_id": 3, "member_id": "m", "group_instance_id": "i"},
         "group g, generation 3, member m, instance i"),
        (13, {"group_id": "g", "members": [{"member_id": "m"}]}, "group g, member m"),
        (13, {"group_id": "g", "member_id": "m"}, "group g, member m"),
        (14, {"group_id": "g", "generation_id": 3, "member_id": "m", "assignments": [{}, {}]},
         "group g, generation 3, member m, assigns 2 members"),
        (14, {"group_id": "g", "generation_id": 3, "member_id": "m", "assignments": [
            {"_assignment": {"value": {"assigned_partitions": [{"topic": "a", "partitions": [0, 1]}]}}},
            {"_assignment": {"value": {"assigned_partitions": []}}}]},
         "group g, generation 3, member m, assigns 2 members: a-0,1; nothing"),
        (11, {"group_id": "g", "member_id": "m", "protocols": [{"name": "range", "_metadata": {"value": {
            "topics": ["a", "b"], "owned_partitions": [{"topic": "a", "partitions": [3]}]}}}, {"name": "roundrobin"}]},
         "group g, member m, range, roundrobin, subscribes a, b, owns a-3"),
        (11, {"group_id": "g", "member_id": "m", "protocols": [
            {"name": "sessioned", "_metadata": {"value": {"url": "http://w:8083/"}}}]},
         "group g, member m, sessioned, worker http://w:8083/"),
        (11, {"group_id": "g", "member_id": "m", "protocols": [{"name": "range", "_metadata": {"value": {}}}]},
         "group g, member m, range"),
        (15, {"groups": ["g", "h"]}, "groups g, h"),
        (16, {"states_filter": ["Stable"], "types_filter": []}, "states Stable"),
        (16, {}, "all groups"),
        (17, {"mechanism": "PLAIN"}, "PLAIN"),
        (18, {"client_software_name": "franz-go", "client_software_version": "1.2"}, "franz-go 1.2"),
        (18, {}, ""),
        (19, {"topics": [{"name": "a", "num_partitions": -1, "replication_factor": -1, "assignments": [],
            "configs": [{"name": "retention.ms", "value": "1"}]}], "validate_only": True},
         "a default partitions retention.ms=1, validate only"),
        (19, {"topics": [{"name": "a", "num_partitions": 1, "replication_factor": 3}]}, "a 1 partition × 3"),
        (20, {"topic_names": ["a", "b"]}, "a, b"),
        (22, {"transactional_id": None, "producer_id": -1}, "idempotent"),
        (24, {"v3_and_below_transactional_id": "t", "v3_and_below_producer_id": 5, "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": "a", "partitions": [0, 1]}]}, "transaction t, producer 5 epoch 0, a-0,1"),
        (25, {"transactional_id": "t", "producer_id": 5, "producer_epoch": 1, "group_id": "g"},
         "transaction t, producer 5 epoch 1, group g"),
        (26, {"transactional_id": "t", "producer_id": 5, "producer_epoch": 1, "committed": False},
         "abort transaction t, producer 5 epoch 1"),
        (32, {"resources": [{"resource_type": 2, "resource_name": "a", "configuration_keys": None},
            {"resource_type": 4, "resource_name": "", "configuration_keys": ["x"]}]}, "topic a all; default broker x"),
        (36, {"auth_bytes": {"redacted": 17}}, "token 17 B, redacted"),
        (36, {"auth_bytes": b"abc"}, "token 3 B"),
        (36, {"auth_bytes": {"redacted": 36}, "_auth_bytes": {
            "mechanism": "SCRAM-SHA-256", "message": "client-first", "username": "bob", "authzid": "al"}},
         "SCRAM-SHA-256 client-first, user bob, acting as al, token 36 B, redacted"),
        (36, {"auth_bytes": {"redacted": 36}, "_auth_bytes": {
            "mechanism": "SCRAM-SHA-256", "message": "client-first", "username": "id", "token_auth": True}},
         "SCRAM-SHA-256 client-first, delegation token id, token 36 B, redacted"),
        (36, {"auth_bytes": {"redacted": 9}, "_auth_bytes": {"mechanism": "X", "message": None}},
         "X, token 9 B, redacted"),
        (36, {"auth_bytes": {"redacted": 9}, "_auth_bytes": {
            "mechanism": "OAUTHBEARER", "message": "client-initial", "extensions": ["logicalCluster"]}},
         "OAUTHBEARER client-initial, extensions logicalCluster, token 9 B, redacted"),
        (44, {"resources": [{"resource_type": 2, "resource_name": "a", "configs": [
            {"name": "x", "config_operation": 1, "value": None}, {"name": "y", "config_operation": 0, "value": "2"}]}]},
         "topic a delete x, set y=2"),
        (44, {"resources": [{"resource_type": 4, "resource_name": "1", "configs": [
            {"name": "sasl.jaas.config", "config_operation": 0, "value": {"redacted": 60}}]}]},
         "broker 1 set sasl.jaas.config=[60 bytes redacted]"),
        (68, {"group_id": "g", "member_id": "m", "member_epoch": -1}, "group g, member m, leave"),
        (68, {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["a"],
            "topic_partitions": []}, "group g, member m, join, subscribes a, owns nothing"),
        (78, {"group_id": "g", "share_session_epoch": 0, "topics": [{"topic_id": UUID, "partitions": [
            {"partition_index": 0, "acknowledgement_batches": [{}, {}]}]}]},
         f"group g, {UUID}-0, acknowledges 2 ranges, initial session epoch"),
        (64, {"broker_id": 7}, "broker 7"),
        (57, {"timeout_ms": 1, "feature_updates": [{"feature": "kraft.version", "max_version_level": 1}],
            "validate_only": True}, "feature_updates kraft.version, validate only"),
    ],
)  # fmt: skip
def test_requests(key: int, body: dict[str, Any], expected: str) -> None:
    assert request(key, body) == expected


@pytest.mark.parametrize(
    ("key", "body", "expected"),
    [
        (1, {"responses": [{"topic": "a", "partitions": [{"partition_index": 0, "error_code": 0, "high_watermark": 1054,
            "records": records({})}]}]}, "a-0 12 records 3.1 kB lz4 from 1042, high watermark 1054"),
        (1, {"responses": [{"topic": "a", "partitions": [{"partition_index": 0, "error_code": 0, "high_watermark": 4,
            "records": records()}]}]}, "a-0 no records, high watermark 4"),
        (1, {"responses": [], "session_id": 3}, "nothing new"),
        (2, {"topics": [{"name": "a", "partitions": [{"partition_index": 0, "error_code": 0, "offset": 8}]}]},
         "a-0 offset 8"),
        (2, {"topics": [{"name": "a", "partitions": [{"partition_index": 0, "error_code": 0,
            "old_style_offsets": [9, 0]}]}]}, "a-0 offsets 9, 0"),
        (3, {"brokers": [{}, {}], "controller_id": 1, "topics": [{"error_code": 0, "name": "a", "partitions": [{}]}]},
         "2 brokers, controller 1, a (1 partition)"),
        (8, {"topics": [{"name": "a", "partitions": [{"partition_index": 0, "error_code": 0}]}]}, "a-0"),
        (9, {"topics": [{"name": "a", "partitions": [
            {"partition_index": 0, "error_code": 0, "committed_offset": 9},
            {"partition_index": 1, "error_code": 0, "committed_offset": -1}]}]}, "a-0 at 9, a-1 none"),
        (10, {"error_code": 0, "node_id": 1, "host": "::1", "port": 9092}, "broker 1 [::1]:9092"),
        (11, {"error_code": 0, "generation_id": 3, "protocol_name": "range", "leader": "m", "member_id": "m",
            "members": [{}, {}]}, "generation 3, member m, range, leads 2 members"),
        (12, {"error_code": 0}, "ok"),
        (12, {"error_code": 0, "throttle_time_ms": 250}, "ok, throttled 250 ms"),
        (14, {"error_code": 0, "assignment": b"x" * 26}, "assignment 26 B"),
        (14, {"error_code": 0, "assignment": b"x", "_assignment": {"value": {"assigned_partitions": [
            {"topic": "a", "partitions": [1, 2]}]}}}, "assigned a-1,2"),
        (15, {"groups": [{"error_code": 0, "group_id": "g", "group_state": "Stable", "members": [{}]}]},
         "g Stable 1 member"),
        (15, {"groups": [{"error_code": 0, "group_id": "g", "group_state": "Stable", "protocol_data": "range",
            "members": [{}, {}]}]},
         "g Stable 2 members range"),
        (14, {"error_code": 0, "assignment": b"x", "_assignment": {"value": {"assigned_partitions": [
            {"topic": "a", "partitions": [1]}], "_user_data": {"value": {
                "active_tasks": [{"topic_group_id": 0, "partition": 1}, {"topic_group_id": 1, "partition": 1}],
                "standby_tasks": [{"topic_group_id": 1, "partition": 0}]}}}}},
         "assigned a-1, active 0_1 1_1, standby 1_0"),
        (14, {"error_code": 0, "assignment": b"x", "_assignment": {"value": {
            "error": 1, "config_offset": 5, "delay": 300, "assignment": [
                {"connector": "copy", "tasks": [-1, 0, 2]}, {"connector": "b", "tasks": [-1]}],
            "revoked": [{"connector": "old", "tasks": [1]}]}}},
         "assigned connector copy, copy-0,2, connector b, revoked old-1, rebalance in 300 ms, CONFIG_MISMATCH"),
        (14, {"error_code": 0, "assignment": b"x", "_assignment": {"value": {"config_offset": 5}}}, "assigned nothing"),
        (36, {"error_code": 0, "auth_bytes": {"redacted": 98}, "session_lifetime_ms": 0, "_auth_bytes": {
            "mechanism": "SCRAM-SHA-256", "message": "server-first", "iterations": 4096}},
         "SCRAM-SHA-256 server-first, 4096 iterations, token 98 B, redacted"),
        (36, {"error_code": 0, "auth_bytes": {"redacted": 60}, "session_lifetime_ms": 5, "_auth_bytes": {
            "mechanism": "OAUTHBEARER", "message": "server-error", "error": {"status": "invalid_token"}}},
         "OAUTHBEARER server-error, error invalid_token, token 60 B, redacted, session lasts 5 ms"),
        (16, {"groups": [{"group_id": "g"}]}, "1 group g"),
        (17, {"mechanisms": ["PLAIN", "SCRAM-SHA-256"]}, "mechanisms PLAIN, SCRAM-SHA-256"),
        (18, {"api_keys": [{}, {}]}, "2 APIs"),
        (22, {"error_code": 0, "producer_id": 5, "producer_epoch": 0}, "producer 5 epoch 0"),
        (23, {"topics": [{"topic": "a", "partitions": [{"partition": 0, "error_code": 0, "leader_epoch": 2,
            "end_offset": 7}]}]}, "a-0 epoch 2 ends at 7"),
        (24, {"results_by_topic_v3_and_below": [{"name": "a", "results_by_partition": [
            {"partition_index": 0, "partition_error_code": 0}, {"partition_index": 1, "partition_error_code": 3}]}]},
         "a-0"),
        (26, {"error_code": 0}, "ok"),
        (32, {"results": [{"error_code": 0, "resource_type": 2, "resource_name": "a", "configs": [{}, {}]}]},
         "topic a 2 configs"),
        (60, {"error_code": 0, "cluster_id": "c", "controller_id": 1, "brokers": [{}]},
         "cluster c, 1 broker, controller 1"),
        (68, {"error_code": 0, "member_id": "m", "member_epoch": 2, "assignment": {"topic_partitions": [
            {"topic_id": UUID, "partitions": [0]}]}}, f"member m, epoch 2, assigned {UUID}-0"),
        (78, {"responses": [{"topic_id": UUID, "partitions": [{"partition_index": 0, "error_code": 0,
            "records": records({}), "acquired_records": [{"first_offset": 5, "last_offset": 9}]}]}]},
         f"{UUID}-0 12 records 3.1 kB lz4, 5 acquired"),
    ],
)  # fmt: skip
def test_responses(key: int, body: dict[str, Any], expected: str) -> None:
    assert response(key, body) == expected


def test_errors_are_shown_with_their_subject() -> None:
    body = {
        "responses": [
            {
                "name": "orders",
                "partition_responses": [
                    {"index": 0, "error_code": 10, "error_message": "too big"},
                    {"index": 1, "error_code": 0, "base_offset": 5},
                    {"index": 2, "error_code": 10},
                    {"index": 3, "error_code": 6, "current_leader": {"leader_id": 2}},
                ],
            }
        ]
    }

    def at(index: int, code: int, name: str | None) -> ErrorCode:
        return ErrorCode(code, name, f"responses[0].partition_responses[{index}].error_code")

    one = at(0, 10, "MESSAGE_TOO_LARGE")
    assert response(0, body, one) == 'orders-0 MESSAGE_TOO_LARGE "too big"; orders-1 offset 5'
    assert response(0, body, one, at(2, 10, "MESSAGE_TOO_LARGE"), at(3, 6, None)) == (
        "orders-0, orders-2 MESSAGE_TOO_LARGE; orders-3 error 6, leader now 2; orders-1 offset 5"
    )


def test_errors_of_the_whole_response_and_of_other_things() -> None:
    assert (
        response(12, {"error_code": 27}, ErrorCode(27, "REBALANCE_IN_PROGRESS", "error_code"))
        == "REBALANCE_IN_PROGRESS"
    )
    body = {"coordinators": [{"key": "g", "error_code": 15, "node_id": -1}]}
    error = ErrorCode(15, "COORDINATOR_NOT_AVAILABLE", "coordinators[0].error_code")
    assert response(10, body, error) == "g COORDINATOR_NOT_AVAILABLE"
    many = {"topics": [{"name": "a", "partitions": [{"partition_index": i, "error_code": 3} for i in range(12)]}]}
    errors = [ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", f"topics[0].partitions[{i}].error_code") for i in range(12)]
    assert response(8, many, *errors) == "a-0, a-1, a-2, +9 more UNKNOWN_TOPIC_OR_PARTITION"


def test_a_path_to_nothing_still_shows_the_error() -> None:
    assert response(8, {"topics": []}, ErrorCode(3, "X", "topics[0].partitions[0].error_code")) == "X"
    assert response(8, {"topics": 5}, ErrorCode(3, "X", "topics[0].y.error_code")) == "X"


def test_metadata_of_version_0_asks_for_all_by_naming_none() -> None:
    assert request(3, {"topics": []}, version=0) == "all topics"
    assert request(3, {"topics": []}, version=1) == "no topics"


def test_a_body_that_was_not_decoded_has_no_summary() -> None:
    assert summary(message(body=None), PLAIN) == ""
    assert summary(message("response", api_key=None, body={}), PLAIN) == ""


def test_amounts_counts_and_lists() -> None:
    assert [amount(size) for size in (0, 999, 1000, 3112, 9949, 9951, 999_499, 999_500, 10**9, 10**13)] == [
        "0 B", "999 B", "1.0 kB", "3.1 kB", "9.9 kB", "10 kB", "999 kB", "1.0 MB", "1.0 GB", "10.0 TB",
    ]  # fmt: skip
    assert count(1, "record") == "1 record"
    assert count(0, "record") == "0 records"
    assert few(["a", "b", "c", "d"]) == "a, b, c, +1 more"
    topics = [{"name": name, "partitions": list(range(8))} for name in "abcd"]
    assert named_partitions(topics) == (
        "a-0,1,2,3,4,5,+2 more, b-0,1,2,3,4,5,+2 more, c-0,1,2,3,4,5,+2 more, +8 partitions"
    )


def pairs() -> list[tuple[int, int, str]]:
    found = []
    for key in dissectors.api_keys():
        api = dissectors.api(key)
        assert api is not None
        found += [(key, version, kind) for version in api.versions for kind in ("request", "response")]
    return found


def test_every_api_in_every_version_has_a_line_and_a_tree_whatever_its_fields_hold() -> None:
    reported = set()
    for key, version, kind in pairs():
        api = dissectors.api(key)
        assert api is not None
        schema = api.request(version) if kind == "request" else api.response(version)
        for seed, choices in enumerate(
            ({}, {"nulls": True}, {"count": 0}, {"count": 2, "nulls": False, "tagged": True})
        ):
            raw, _ = Encoder(Plan(random.Random(f"{key} {version} {seed}"), **choices)).body(schema.root)
            for show_secrets in (False, True):
                # Whole, and cut in the middle: what is left of a body then may end anywhere.
                for data in (raw, raw[: len(raw) // 2]):
                    context = DecodeContext(DecodeOptions(show_secrets=show_secrets))
                    body = schema.read(data, 0, len(data), context).body
                    one = message(kind, api_key=key, api=api.name, api_version=version, body=body,
                                  errors=tuple(context.errors))  # fmt: skip
                    line = summary(one, PLAIN)
                    assert line.isprintable()
                    assert all(text.isprintable() for text in body_tree(one, PLAIN, records=True, width=80))
                    if line not in ("", "ok"):
                        reported.add((key, kind))
    # Every request has a summary in some version, except for the few without content.
    silent = {dissectors.api(key).name for key in dissectors.api_keys() if (key, "request") not in reported}  # type: ignore[union-attr]
    assert silent <= {"ListConfigResources", "DescribeClientQuotas"}
