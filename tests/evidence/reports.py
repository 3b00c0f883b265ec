"""What the clients report in the sidecars, held against the golden lines.

`CHECKS` has a function for each kind of report: it is True where the lines hold what the client reports. Requests and
responses that a client's own log names are not here: they are compared as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.evidence.admin_reports import ADMIN_CHECKS
from tests.evidence.application_reports import APPLICATION_CHECKS
from tests.evidence.cluster_reports import CLUSTER_CHECKS
from tests.evidence.decoded import Decoded, Entry, Record, has, objects, split, to_bytes
from tests.evidence.internal_reports import INTERNAL_CHECKS

ACKNOWLEDGE_TYPES = {"accept": 1, "release": 2, "reject": 3}
OWN_ERRORS = {"TimeoutException": "UNKNOWN_TOPIC_OR_PARTITION", "OffsetOutOfRangeException": "OFFSET_OUT_OF_RANGE"}
"""Exceptions that the Java client makes up itself: the broker's error that caused them."""


def _same_record(entry: Entry, one: Record) -> bool:
    """Whether a record is the one of a report; what the report omits is not compared."""
    reported: dict[str, Any] = {"key": one.record["key"], "value": one.record["value"]}
    reported |= {"topic": one.topic, "partition": one.partition}
    # A record without a timestamp: -1 in the clients, null in magic 0.
    reported["timestamp"] = -1 if one.record["timestamp"] is None else one.record["timestamp"]
    reported["headers"] = [[header["key"], header["value"]] for header in one.record.get("headers", ())]
    if one.batch["compression"] != "none":  # clients leave a batch as it is where compression does not make it smaller
        reported["codec"] = one.batch["compression"]
    reported["timestamp_type"] = one.batch.get("timestamp_type")
    reported["producer_id"], reported["producer_epoch"] = one.batch.get("producer_id"), one.batch.get("producer_epoch")
    if entry.get("timestamp", 0) is None:
        entry = {**entry, "timestamp": -1}
    if entry.get("offset") is not None:
        reported["offset"] = one.offset
    return has(reported, {name: value for name, value in entry.items() if name in reported})


def _client(seen: Decoded, entry: Entry) -> bool:
    names = [line["body"].get("client_software_version") for line in seen.messages("ApiVersions", "request")]
    # Brokers that talk to each other name their own version.
    reported = [name for name in names if name]
    return not reported or any(entry["version"] in name for name in reported)


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
    if entry["mechanism"] == "OAUTHBEARER":
        # RFC 7628: pairs between control-A characters, the token's first (RFC 6750), then extensions (KIP-342).
        pairs = [f"auth=Bearer {entry['token']}", *(f"{name}={value}" for name, value in entry["extensions"].items())]
        return any(set(to_bytes(one).split(b"\x01")) >= {pair.encode() for pair in pairs} for one in tokens)
    if entry["mechanism"] == "PLAIN":
        # RFC 4616: whom to act for (often empty), who, password.
        return any(
            to_bytes(one).split(b"\0")[1:] == [entry[name].encode() for name in ("user", "password")] for one in tokens
        )
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
    reported = entry.get("partitions")
    if reported is None:
        reported = [f"{topic}-{number}" for topic, numbers in entry["assignment"].items() for number in numbers]
    if "generation" in entry and not _is_member(seen, entry):
        return False
    return not reported or any(set(reported) <= one for one in seen.assignments(entry.get("client_id")))


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
        "ConsumerGroupHeartbeat ShareGroupHeartbeat StreamsGroupHeartbeat",
        "request",
        client,
        group_id=entry["group"],
        member_epoch=-1,
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
        # The newest versions are not known to the definitions: then the line has the bytes.
        unknown = any(line.get("api") == "TxnOffsetCommit" and line["body"] is None for line in seen.lines)
        reported = {"partition_index": entry["partition"], "committed_offset": entry["committed_offset"]}
        return ended and (unknown or seen.found("TxnOffsetCommit", "request", **reported))
    return ended and set(entry.get("values", ())) <= values


def _described_group(seen: Decoded, entry: Entry) -> bool:
    apis = "DescribeGroups ConsumerGroupDescribe ShareGroupDescribe StreamsGroupDescribe"
    groups = [
        one
        for line in seen.messages(apis, "response")
        for one in objects(line["body"])
        if one.get("group_id") == entry["group"] and one["group_state"].lower() == entry["state"].lower()
    ]
    members = {(one["client_id"], one["member_id"]) for group in groups for one in group["members"]}
    reported = [
        (one[0], one[1]) if isinstance(one, list) else (one["client_id"], one.get("member_id"))
        for one in entry.get("members", ())
    ]
    return bool(groups) and all(
        pair in members if pair[1] is not None else pair[0] in {client for client, _ in members} for pair in reported
    )


def _listed_groups(seen: Decoded, entry: Entry) -> bool:
    listed = [one for line in seen.messages("ListGroups", "response") for one in line["body"]["groups"]]
    names = {"group": "group_id", "protocol_type": "protocol_type", "type": "group_type", "state": "group_state"}
    reported = [dict(zip(("group", "state"), one, strict=True)) for one in entry.get("groups", ())] or [entry]
    return all(
        any(
            all(item[names[name]].lower() == value.lower() for name, value in one.items() if name in names)
            for item in listed
        )
        for one in reported
    )


def _offsets(seen: Decoded, entry: Entry) -> bool:
    reported = entry["offsets"]
    if isinstance(reported, list):
        parts = [(one["topic"], part) for one in reported for part in one["partitions"]]
        reported = {f"{topic}-{part['partition']}": int(part["offset"]) for topic, part in parts}
    found = seen.offsets("OffsetFetch", "response", "committed_offset", entry["group"])
    found |= seen.offsets("DescribeShareGroupOffsets", "response", "start_offset", entry["group"])
    return all(offset in found.get(partition, ()) for partition, offset in reported.items())


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


CHECKS: dict[str, Callable[[Decoded, Entry], bool]] = {
    **ADMIN_CHECKS,
    **APPLICATION_CHECKS,
    **CLUSTER_CHECKS,
    **INTERNAL_CHECKS,
    "acknowledged": _acknowledged,
    "altered_offsets": _altered_offsets,
    "assigned": _assigned,
    "authenticated": _authenticated,
    "client": _client,
    "committed": _committed,
    "consumed": lambda seen, entry: any(_same_record(entry, one) for one in seen.consumed),
    "deleted_group": lambda seen, entry: (
        seen.found("DeleteGroups", "response", group_id=entry["group"], error_code=0)
        or seen.found("DeleteShareGroupState", "response", group_id=entry["group"])
    ),
    "deleted_offsets": _deleted_offsets,
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
    "failed": _failed,
    "left": _left,
    "listed_group": _listed_groups,
    "listed_groups": _listed_groups,
    "offsets": _offsets,
    "produced": lambda seen, entry: any(_same_record(entry, one) for one in seen.produced),
    # What was taken away had been given before.
    "revoked": _assigned,
    "transaction": _transaction,
}
