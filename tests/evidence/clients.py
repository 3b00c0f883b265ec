"""What the clients say they did (the sidecars), held against the golden lines.

`CHECKS` has a function for each kind of report: it is True where the lines hold what the client tells. Requests and
responses that a client's own log names are not here: they are compared as a whole.
"""

from __future__ import annotations

import ast
import base64
import re
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from tests.evidence.compare import Line

Entry = dict[str, Any]

ACKNOWLEDGE_TYPES = {"accept": 1, "release": 2, "reject": 3}
SCRAM_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
# org.apache.kafka.common.resource.ResourceType, PatternType, acl.AclOperation, AclPermissionType
ACL_CODES = {"TOPIC": 2, "PREFIXED": 4, "READ": 3, "ALLOW": 3}
OPERATIONS = {
    "reassign a partition": "AlterPartitionReassignments",
    "set a secret": "IncrementalAlterConfigs",
    "describe quotas": "DescribeClientQuotas",
    "update a feature": "UpdateFeatures",
    "fence producers": "InitProducerId",
}
"""The API behind what an administrator tried, where it went well."""

OWN_ERRORS = {"TimeoutException": "UNKNOWN_TOPIC_OR_PARTITION", "OffsetOutOfRangeException": "OFFSET_OUT_OF_RANGE"}
"""Exceptions that the Java client makes up itself: the broker's error that was behind them."""


class Record(NamedTuple):
    topic: str | None
    partition: int
    offset: int | None
    batch: dict[str, Any]
    record: dict[str, Any]


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a body, the body first."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from objects(item)
    elif isinstance(value, list):
        for item in value:
            yield from objects(item)


def has(one: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    return all(name in one and one[name] == value for name, value in fields.items())


def kafka_uuid(text: str) -> str:
    """A uuid in any spelling as Kafka prints it."""
    if len(text) == 22:
        return text
    return base64.urlsafe_b64encode(uuid.UUID(text).bytes).decode().rstrip("=")


def to_bytes(value: Any) -> bytes:
    """A value of type bytes of a line."""
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


def consumer_assignment(data: bytes) -> set[str]:
    """Partitions in a ConsumerProtocolAssignment: version, topics, partitions of each (all versions begin so)."""
    found = set()
    (topics,) = struct.unpack_from(">i", data, 2)
    position = 6
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", data, position)
        topic = data[position + 2 : position + 2 + length].decode()
        (count,) = struct.unpack_from(">i", data, position + 2 + length)
        position += 6 + length
        found |= {f"{topic}-{one}" for one in struct.unpack_from(f">{count}i", data, position)}
        position += 4 * count
    return found


def split(partition: str) -> tuple[str, int]:
    """`events-3` → `("events", 3)`."""
    topic, _, number = partition.rpartition("-")
    return topic, int(number)


class Decoded:
    """The lines of a capture, to be asked."""

    def __init__(self, lines: tuple[Line, ...], open_lines: tuple[Line, ...]) -> None:
        self.lines = lines
        self.open_lines = open_lines
        """The same with secrets shown."""

    def messages(self, apis: str, kind: str, client_id: str | None = None, *, shown: bool = False) -> list[Line]:
        """Lines of `apis` (separated by blanks) with a body."""
        return [
            line
            for line in (self.open_lines if shown else self.lines)
            if line["type"] == kind and line["api"] in apis.split() and line["body"] is not None
            if client_id in {None, line["client_id"]}
        ]

    def found(self, apis: str, kind: str, client_id: str | None = None, **fields: Any) -> bool:
        """Whether a body of those has an object with these fields."""
        lines = self.messages(apis, kind, client_id)
        return any(has(one, fields) for line in lines for one in objects(line["body"]))

    @cached_property
    def topics(self) -> dict[str, str]:
        """Topic ids to names, of all messages that have both."""
        return {
            one["topic_id"]: one.get("name") or one["topic_name"]
            for line in self.lines
            if line["type"] in {"request", "response"}
            for one in objects(line["body"])
            if isinstance(one.get("topic_id"), str) and (one.get("name") or one.get("topic_name"))
        }

    def _topic(self, one: Mapping[str, Any]) -> str | None:
        name = one.get("name") or one.get("topic")
        return name if name is not None else self.topics.get(one.get("topic_id", ""))

    @cached_property
    def produced(self) -> list[Record]:
        """Records of all Produce requests, with the offsets that the responses gave them."""
        answers: dict[tuple[int, str | None, int], int] = {}
        for line in self.messages("Produce", "response"):
            for topic in line["body"]["responses"]:
                for one in topic["partition_responses"]:
                    answers[line["exchange"], self._topic(topic), one["index"]] = one["base_offset"]
        found = []
        for line in self.messages("Produce", "request"):
            for topic in line["body"]["topic_data"]:
                name = self._topic(topic)
                for one in topic["partition_data"]:
                    base = answers.get((line["exchange"], name, one["index"]))
                    records = [
                        (batch, record)
                        for batch in (one.get("records") or {"batches": []})["batches"]
                        for record in batch["records"]
                    ]
                    for ordinal, (batch, record) in enumerate(records):
                        offset = None if base is None else base + ordinal
                        found.append(Record(name, one["index"], offset, batch, record))
        return found

    @cached_property
    def consumed(self) -> list[Record]:
        """Records of all Fetch and ShareFetch responses; the same one may come several times."""
        return [
            Record(self._topic(topic), one["partition_index"], record["offset"], batch, record)
            for line in self.messages("Fetch ShareFetch", "response")
            for topic in line["body"]["responses"]
            for one in topic["partitions"]
            for batch in (one.get("records") or {"batches": []})["batches"]
            for record in batch["records"]
        ]

    def assignments(self, client_id: str | None) -> list[set[str]]:
        """Partitions that coordinators assigned to a client, each time."""
        found = [
            consumer_assignment(to_bytes(line["body"]["assignment"]))
            for line in self.messages("SyncGroup", "response", client_id)
            if line["body"]["assignment"]
        ]
        for line in self.messages("ConsumerGroupHeartbeat", "response", client_id):
            if line["body"]["assignment"]:
                parts = [
                    (self.topics[one["topic_id"]], one["partitions"])
                    for one in line["body"]["assignment"]["topic_partitions"]
                ]
                found.append({f"{topic}-{number}" for topic, numbers in parts for number in numbers})
        return found

    def offsets(self, apis: str, kind: str, field: str, group: str) -> dict[str, set[int]]:
        """All values of an offset field by partition, within bodies that name the group."""
        found: dict[str, set[int]] = {}
        for line in self.messages(apis, kind):
            whole = [one for one in objects(line["body"]) if "group_id" in one]
            # A response of the older versions names no group: its request does.
            if whole and all(one["group_id"] != group for one in whole):
                continue
            for topic in objects(line["body"]):
                for one in topic.get("partitions") or ():
                    if isinstance(one, dict) and field in one:
                        name = f"{self._topic(topic) or topic.get('topic_name')}-{one['partition_index']}"
                        found.setdefault(name, set()).add(one[field])
        return found


def _same_record(entry: Entry, one: Record) -> bool:
    """Whether a record is the one of a report; what the report leaves out is not compared."""
    told: dict[str, Any] = {"key": one.record["key"], "value": one.record["value"]}
    told |= {"topic": one.topic, "partition": one.partition}
    # A record without a timestamp: -1 in the clients, null in magic 0.
    told["timestamp"] = -1 if one.record["timestamp"] is None else one.record["timestamp"]
    told["headers"] = [[header["key"], header["value"]] for header in one.record.get("headers", ())]
    if one.batch["compression"] != "none":  # clients leave a batch as it is where compression does not make it smaller
        told["codec"] = one.batch["compression"]
    told["timestamp_type"] = one.batch.get("timestamp_type")
    told["producer_id"], told["producer_epoch"] = one.batch.get("producer_id"), one.batch.get("producer_epoch")
    if entry.get("timestamp", 0) is None:
        entry = {**entry, "timestamp": -1}
    if entry.get("offset") is not None:
        told["offset"] = one.offset
    return has(told, {name: value for name, value in entry.items() if name in told})


def _client(seen: Decoded, entry: Entry) -> bool:
    names = [line["body"].get("client_software_version") for line in seen.messages("ApiVersions", "request")]
    return all(entry["version"] in name for name in names if name)


def _created(seen: Decoded, entry: Entry) -> bool:
    identity = {"topic_id": kafka_uuid(entry["topic_id"])} if "topic_id" in entry else {}
    return all(
        seen.found("CreateTopics", "request", name=topic)
        and seen.found("CreateTopics", "response", name=topic, error_code=0, **identity)
        and (
            seen.found("CreateTopics", "response", name=topic, num_partitions=entry["partitions"])
            or seen.found("CreateTopics", "request", name=topic, num_partitions=entry["partitions"])
        )
        for topic in entry.get("topics", [entry.get("topic")])
    )


def _failed(seen: Decoded, entry: Entry) -> bool:
    errors = {(error["code"], error["name"]) for line in seen.lines for error in line.get("errors", ())}
    if entry.get("error_code") is not None:
        return (entry["error_code"], entry["error"]) in errors
    if "mechanism" in entry:
        refused = (58, "SASL_AUTHENTICATION_FAILED") in errors
        # Raw tokens carry no error: the broker closes the connection.
        return refused or any(line["type"] == "sasl" and line["mechanism"] == entry["mechanism"] for line in seen.lines)
    return OWN_ERRORS[entry["exception"]] in {name for _, name in errors}


def _authenticated(seen: Decoded, entry: Entry) -> bool:
    if not seen.found("SaslHandshake", "request", entry["client_id"], mechanism=entry["mechanism"]):
        return False
    tokens = [line["body"]["auth_bytes"] for line in seen.messages("SaslAuthenticate", "request", shown=True)]
    tokens += [line["token"] for line in seen.open_lines if line["type"] == "sasl"]
    if entry["mechanism"] == "PLAIN":
        wanted = f"\0{entry['user']}\0{entry['password']}".encode()
        return any(to_bytes(one) == wanted for one in tokens if one != "")
    # RFC 5802: the client's first message names the user.
    return any(f"n={entry['user']},".encode() in to_bytes(one) for one in tokens)


def _committed(seen: Decoded, entry: Entry) -> bool:
    if "offsets" not in entry and "partition" not in entry:
        fields = {"member_id": entry["group"], "generation_id_or_member_epoch": entry["generation"]}
        return seen.found("OffsetCommit", "request", **fields)
    found = seen.offsets("OffsetCommit", "request", "committed_offset", entry["group"])
    if "partition" in entry:
        wanted = {f"{entry['topic']}-{entry['partition']}": entry["offset"]}
    else:
        prefix = f"{entry['topic']}-" if "topic" in entry else ""
        wanted = {prefix + partition: offset for partition, offset in entry["offsets"].items()}
    noted = "metadata" not in entry or seen.found("OffsetCommit", "request", committed_metadata=entry["metadata"])
    return noted and all(offset in found.get(partition, ()) for partition, offset in wanted.items())


def _assigned(seen: Decoded, entry: Entry) -> bool:
    told = entry.get("partitions")
    if told is None:
        told = [f"{topic}-{number}" for topic, numbers in entry["assignment"].items() for number in numbers]
    if "generation" in entry and not _is_member(seen, entry):
        return False
    return not told or any(set(told) <= one for one in seen.assignments(entry.get("client_id")))


def _is_member(seen: Decoded, entry: Entry) -> bool:
    member, generation = entry["member_id"], entry["generation"]
    apis = "ConsumerGroupHeartbeat JoinGroup Heartbeat SyncGroup LeaveGroup"
    return any(
        seen.found(apis, kind, member_id=member, **{field: generation})
        for kind in ("request", "response")
        for field in ("generation_id", "member_epoch")
    )


def _left(seen: Decoded, entry: Entry) -> bool:
    client = entry.get("client_id")
    return seen.found("LeaveGroup", "request", client, group_id=entry["group"]) or seen.found(
        "ConsumerGroupHeartbeat ShareGroupHeartbeat", "request", client, group_id=entry["group"], member_epoch=-1
    )


def _acknowledged(seen: Decoded, entry: Entry) -> bool:
    """KIP-932: a batch has one type for all of its offsets, or one for each."""
    for line in seen.messages("ShareFetch ShareAcknowledge", "request", entry["client_id"]):
        for one in objects(line["body"]):
            if "acknowledge_types" in one and one["first_offset"] <= entry["offset"] <= one["last_offset"]:
                types = one["acknowledge_types"]
                index = 0 if len(types) == 1 else entry["offset"] - one["first_offset"]
                if types[index] == ACKNOWLEDGE_TYPES[entry["type"]]:
                    return True
    return False


def _transaction(seen: Decoded, entry: Entry) -> bool:
    committed = entry["committed"] if "committed" in entry else entry["result"] == "commit"
    ended = seen.found("EndTxn", "request", transactional_id=entry["transactional_id"], committed=committed)
    values = {one.record["value"] for one in seen.produced if isinstance(one.record["value"], str)}
    if "committed_offset" in entry:
        # The newest versions are not known to the definitions: then the bytes stand in the line.
        unknown = any(line.get("api") == "TxnOffsetCommit" and line["body"] is None for line in seen.lines)
        told = {"partition_index": entry["partition"], "committed_offset": entry["committed_offset"]}
        return ended and (unknown or seen.found("TxnOffsetCommit", "request", **told))
    return ended and set(entry.get("values", ())) <= values


def _described_group(seen: Decoded, entry: Entry) -> bool:
    apis = "DescribeGroups ConsumerGroupDescribe ShareGroupDescribe"
    groups = [
        one
        for line in seen.messages(apis, "response")
        for one in objects(line["body"])
        if one.get("group_id") == entry["group"] and one["group_state"].lower() == entry["state"].lower()
    ]
    members = {(one["client_id"], one["member_id"]) for group in groups for one in group["members"]}
    told = [
        (one[0], one[1]) if isinstance(one, list) else (one["client_id"], one.get("member_id"))
        for one in entry.get("members", ())
    ]
    return bool(groups) and all(
        pair in members if pair[1] is not None else pair[0] in {client for client, _ in members} for pair in told
    )


def _listed_groups(seen: Decoded, entry: Entry) -> bool:
    listed = [one for line in seen.messages("ListGroups", "response") for one in line["body"]["groups"]]
    names = {"group": "group_id", "protocol_type": "protocol_type", "type": "group_type", "state": "group_state"}
    told = [dict(zip(("group", "state"), one, strict=True)) for one in entry.get("groups", ())] or [entry]
    return all(
        any(
            all(item[names[name]].lower() == value.lower() for name, value in one.items() if name in names)
            for item in listed
        )
        for one in told
    )


def _offsets(seen: Decoded, entry: Entry) -> bool:
    told = entry["offsets"]
    if isinstance(told, list):
        parts = [(one["topic"], part) for one in told for part in one["partitions"]]
        told = {f"{topic}-{part['partition']}": int(part["offset"]) for topic, part in parts}
    found = seen.offsets("OffsetFetch", "response", "committed_offset", entry["group"])
    found |= seen.offsets("DescribeShareGroupOffsets", "response", "start_offset", entry["group"])
    return all(offset in found.get(partition, ()) for partition, offset in told.items())


def _altered_offsets(seen: Decoded, entry: Entry) -> bool:
    found = seen.offsets("OffsetCommit", "request", "committed_offset", entry["group"])
    found |= seen.offsets("AlterShareGroupOffsets", "request", "start_offset", entry["group"])
    return all(offset in found.get(partition, ()) for partition, offset in entry["offsets"].items())


def _deleted_offsets(seen: Decoded, entry: Entry) -> bool:
    for topic in entry.get("topics", ()):
        if not seen.found("DeleteShareGroupOffsets", "response", topic_name=topic, error_code=0):
            return False
    return all(
        seen.found("OffsetDelete", "request", name=split(one)[0])
        and seen.found("OffsetDelete", "response", partition_index=split(one)[1], error_code=0)
        for one in entry.get("partitions", ())
    )


def _count(seen: Decoded, api: str, *path: str) -> list[int]:
    """Lengths of what `path` leads to in the responses of an API; lists on the way are summed up."""
    lengths = []
    for line in seen.messages(api, "response"):
        level = [line["body"]]
        for step in path:
            level = [item for one in level for item in (one[step] or ())]
        lengths.append(len(level))
    return lengths


def _described_credentials(seen: Decoded, entry: Entry) -> bool:
    """The Java client's way of printing them, made from the response."""
    names = {code: name.replace("-", "_") for name, code in SCRAM_MECHANISMS.items()}
    for line in seen.messages("DescribeUserScramCredentials", "response"):
        shown = [
            f"UserScramCredentialsDescription{{name='{one['user']}', credentialInfos=["
            + ", ".join(
                f"ScramCredentialInfo{{mechanism={names[info['mechanism']]}, iterations={info['iterations']}}}"
                for info in one["credential_infos"]
            )
            + "]}"
            for one in line["body"]["results"]
        ]
        if sorted(shown) == sorted(entry["users"]):
            return True
    return False


def _described_features(seen: Decoded, entry: Entry) -> bool:
    pattern = r"([\w.]+)=FinalizedVersionRange\[min_version_level:(\d+), max_version_level:(\d+)\]"
    told = sorted((name, int(low), int(high)) for name, low, high in re.findall(pattern, entry["finalized"]))
    return any(
        told == sorted((one["name"], one["min_version_level"], one["max_version_level"]) for one in features)
        for line in seen.messages("ApiVersions", "response")
        if (features := line["body"].get("finalized_features"))
    )


def _described_topic(seen: Decoded, entry: Entry) -> bool:
    told = entry.get("description", entry)
    name, identity = told.get("name") or told["topic"], kafka_uuid(told["topic_id"])
    parts = told["partitions"]
    for line in seen.messages("Metadata DescribeTopicPartitions", "response"):
        for one in objects(line["body"]):
            if has(one, {"name": name, "topic_id": identity}) and "partitions" in one:
                count = len(one["partitions"])
                if isinstance(parts, int) and count == parts:
                    return True
                if not isinstance(parts, int) and all(map(has, one["partitions"], parts)) and count == len(parts):
                    return True
    return False


def _setting(seen: Decoded, entry: Entry) -> bool:
    names = {"name": entry["name"], "value": entry["value"], "is_sensitive": entry["sensitive"]}
    return any(
        has(one, {"resource_name": entry["resource_name"]}) and any(has(item, names) for item in one["configs"])
        for line in seen.messages("DescribeConfigs", "response")
        for one in line["body"]["results"]
    )


def _described_settings(seen: Decoded, entry: Entry) -> bool:
    return all(
        seen.found("DescribeConfigs", "response", name=name, value=one["value"], read_only=one["read_only"])
        for resources in ast.literal_eval(entry["settings"]).values()
        for settings in resources.values()
        for name, one in settings.items()
    )


def _described_cluster(seen: Decoded, entry: Entry) -> bool:
    told = entry.get("cluster", entry)
    fields = {"cluster_id": told["cluster_id"]}
    if "controller" in told or "controller_id" in told:
        fields["controller_id"] = told.get("controller", told.get("controller_id"))
    return seen.found("DescribeCluster", "response", **fields) and all(
        seen.found("DescribeCluster", "response", **one) for one in told.get("brokers", ())
    )


def _described_quorum(seen: Decoded, entry: Entry) -> bool:
    return any(
        has(one, {"leader_id": entry["leader"]}) and len(one["current_voters"]) == entry["voters"]
        for line in seen.messages("DescribeQuorum", "response")
        for one in objects(line["body"])
        if "current_voters" in one
    )


def _described_log_dir(seen: Decoded, entry: Entry) -> bool:
    found = {
        f"{topic['name']}-{one['partition_index']}"
        for line in seen.messages("DescribeLogDirs", "response")
        for folder in line["body"]["results"]
        for topic in folder["topics"]
        for one in topic["partitions"]
    }
    return set(entry["partitions"].strip("[]").split(", ")) <= found


def _listed_offset(seen: Decoded, entry: Entry) -> bool:
    told = {name: entry[name] for name in ("offset", "timestamp", "leader_epoch") if entry.get(name) is not None}
    return seen.found("ListOffsets", "response", partition_index=entry["partition"], error_code=0, **told)


def _altered_settings(seen: Decoded, entry: Entry) -> bool:
    return all(
        # AlterConfigOp.OpType: 0 sets, 2 appends
        seen.found(
            "IncrementalAlterConfigs",
            "request",
            name=name,
            value=value.removeprefix("+"),
            config_operation=2 if value.startswith("+") else 0,
        )
        for name, value in entry["settings"].items()
    )


def _altered_quota(seen: Decoded, entry: Entry) -> bool:
    values = {name: value for name, value in entry.items() if isinstance(value, float)}
    return all(
        seen.found("AlterClientQuotas", "request", entity_type=name, entity_name=value)
        for name, value in entry["entity"].items()
    ) and all(
        seen.found("AlterClientQuotas", "request", key=name, value=value, remove=False)
        for name, value in values.items()
    )


def _altered_credentials(seen: Decoded, entry: Entry) -> bool:
    for user, told in entry["users"].items():
        mechanism, iterations = told.split()
        fields = {"name": user, "mechanism": SCRAM_MECHANISMS[mechanism], "iterations": int(iterations)}
        if not seen.found("AlterUserScramCredentials", "request", **fields):
            return False
    return True


def _created_acl(seen: Decoded, entry: Entry) -> bool:
    return seen.found(
        "CreateAcls",
        "request",
        resource_type=ACL_CODES[entry["resource_type"]],
        resource_name=entry["resource"],
        resource_pattern_type=ACL_CODES[entry["pattern"]],
        principal=entry["principal"],
        host=entry["host"],
        operation=ACL_CODES[entry["operation"]],
        permission_type=ACL_CODES[entry["permission"]],
    )


def _created_token(seen: Decoded, entry: Entry) -> bool:
    told = (entry["token_id"], base64.b64decode(entry["hmac"]))
    bodies = [line["body"] for line in seen.messages("CreateDelegationToken", "response", shown=True)]
    return any((body["token_id"], to_bytes(body["hmac"])) == told for body in bodies)


def _done(seen: Decoded, entry: Entry) -> bool:
    return any(not line["errors"] for line in seen.messages(OPERATIONS[entry["operation"]], "response"))


CHECKS: dict[str, Callable[[Decoded, Entry], bool]] = {
    "acknowledged": _acknowledged,
    "altered_credentials": _altered_credentials,
    "altered_offsets": _altered_offsets,
    "altered_quota": _altered_quota,
    "altered_settings": _altered_settings,
    "assigned": _assigned,
    "authenticated": _authenticated,
    "client": _client,
    "committed": _committed,
    "consumed": lambda seen, entry: any(_same_record(entry, one) for one in seen.consumed),
    "created": _created,
    "created_acl": _created_acl,
    "created_partitions": lambda seen, entry: seen.found(
        "CreatePartitions", "request", name=entry["topic"], count=entry["count"]
    ),
    "created_token": _created_token,
    "deleted": lambda seen, entry: seen.found("DeleteTopics", "response", name=entry["topic"], error_code=0),
    "deleted_acls": lambda seen, entry: entry["count"] in _count(seen, "DeleteAcls", "filter_results", "matching_acls"),
    "deleted_credentials": lambda seen, entry: all(
        seen.found("AlterUserScramCredentials", "request", name=user) for user in entry["users"]
    ),
    "deleted_group": lambda seen, entry: (
        seen.found("DeleteGroups", "response", group_id=entry["group"], error_code=0)
        or seen.found("DeleteShareGroupState", "response", group_id=entry["group"])
    ),
    "deleted_offsets": _deleted_offsets,
    "deleted_records": lambda seen, entry: seen.found(
        "DeleteRecords", "response", partition_index=entry["partition"], low_watermark=entry["low_watermark"]
    ),
    "described_acls": lambda seen, entry: entry["count"] in _count(seen, "DescribeAcls", "resources", "acls"),
    "described_cluster": _described_cluster,
    "described_credentials": _described_credentials,
    "described_features": _described_features,
    "described_group": _described_group,
    "described_groups": lambda seen, entry: all(
        seen.found(
            "DescribeGroups",
            "response",
            group_id=one["groupId"],
            group_state=one["state"],
            protocol_type=one["protocolType"],
        )
        for one in entry["groups"]
    ),
    "described_log_dir": _described_log_dir,
    "described_producer": lambda seen, entry: seen.found(
        "DescribeProducers",
        "response",
        **{name: entry[name] for name in ("producer_id", "producer_epoch", "last_sequence", "last_timestamp")},
    ),
    "described_quorum": _described_quorum,
    "described_settings": _described_settings,
    "described_tokens": lambda seen, entry: entry["count"] in _count(seen, "DescribeDelegationToken", "tokens"),
    "described_topic": _described_topic,
    "described_transaction": lambda seen, entry: seen.found(
        "DescribeTransactions",
        "response",
        transaction_state=entry["state"],
        transaction_timeout_ms=entry["timeout_ms"],
        **{name: entry[name] for name in ("transactional_id", "producer_id", "producer_epoch")},
    ),
    "done": _done,
    "end_offsets": lambda seen, entry: all(
        seen.found("ListOffsets", "response", entry["client_id"], partition_index=split(name)[1], offset=offset)
        for name, offset in entry["offsets"].items()
    ),
    "expired_token": lambda seen, entry: any(
        not line["errors"] for line in seen.messages("ExpireDelegationToken", "response")
    ),
    "failed": _failed,
    "left": _left,
    "listed_group": _listed_groups,
    "listed_groups": _listed_groups,
    "listed_offset": _listed_offset,
    "listed_reassignments": lambda seen, entry: entry["count"] in _count(seen, "ListPartitionReassignments", "topics"),
    "listed_resources": lambda seen, entry: all(
        seen.found("ListConfigResources", "response", resource_name=name.split(" ", 1)[1]) for name in entry["names"]
    ),
    "listed_topics": lambda seen, entry: all(seen.found("Metadata", "response", name=name) for name in entry["topics"]),
    "listed_transaction": lambda seen, entry: seen.found(
        "ListTransactions",
        "response",
        transactional_id=entry["transactional_id"],
        producer_id=entry["producer_id"],
        transaction_state=entry["state"],
    ),
    "moved_leader": lambda seen, entry: seen.found(
        "Metadata", "response", partition_index=entry["partition"], leader_id=entry["leader"]
    ),
    "offsets": _offsets,
    "produced": lambda seen, entry: any(_same_record(entry, one) for one in seen.produced),
    "renewed_token": lambda seen, entry: seen.found(
        "RenewDelegationToken", "response", expiry_timestamp_ms=entry["expiry"], error_code=0
    ),
    # What was taken away had been given before.
    "revoked": _assigned,
    "setting": _setting,
    "topic_offsets": lambda seen, entry: all(
        seen.found("ListOffsets", "response", partition_index=one["partition"], offset=int(one["offset"]))
        for one in entry["offsets"]
    ),
    "transaction": _transaction,
}
