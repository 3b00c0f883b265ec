"""What administrators report, held against the golden lines: one check for each kind of report."""

from __future__ import annotations

import ast
import base64
import re
from collections.abc import Callable

from tests.evidence.decoded import Decoded, Entry, has, kafka_uuid, objects, split, to_bytes

SCRAM_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
# org.apache.kafka.common.resource.ResourceType, PatternType, acl.AclOperation, AclPermissionType
ACL_CODES = {"TOPIC": 2, "PREFIXED": 4, "READ": 3, "ALLOW": 3}
OPERATIONS = {
    "reassign a partition": "AlterPartitionReassignments",
    "set a secret": "IncrementalAlterConfigs",
    "describe quotas": "DescribeClientQuotas",
    "update a feature": "UpdateFeatures",
    "fence producers": "InitProducerId",
    "move a replica to another folder": "AlterReplicaLogDirs",
}
"""The API of an administrator's attempt that succeeded."""


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
    reported = sorted((name, int(low), int(high)) for name, low, high in re.findall(pattern, entry["finalized"]))
    return any(
        reported == sorted((one["name"], one["min_version_level"], one["max_version_level"]) for one in features)
        for line in seen.messages("ApiVersions", "response")
        if (features := line["body"].get("finalized_features"))
    )


def _described_topic(seen: Decoded, entry: Entry) -> bool:
    reported = entry.get("description", entry)
    name, identity = reported.get("name") or reported["topic"], kafka_uuid(reported["topic_id"])
    parts = reported["partitions"]
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
    reported = entry.get("cluster", entry)
    fields = {"cluster_id": reported["cluster_id"]}
    if "controller" in reported or "controller_id" in reported:
        fields["controller_id"] = reported.get("controller", reported.get("controller_id"))
    return seen.found("DescribeCluster", "response", **fields) and all(
        seen.found("DescribeCluster", "response", **one) for one in reported.get("brokers", ())
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
    reported = {name: entry[name] for name in ("offset", "timestamp", "leader_epoch") if entry.get(name) is not None}
    return seen.found("ListOffsets", "response", partition_index=entry["partition"], error_code=0, **reported)


def _altered_settings(seen: Decoded, entry: Entry) -> bool:
    return all(
        # Before 2.3 all settings of a resource at once.
        seen.found("AlterConfigs", "request", name=name, value=value)
        or
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
    for user, reported in entry["users"].items():
        mechanism, iterations = reported.split()
        fields = {"name": user, "mechanism": SCRAM_MECHANISMS[mechanism], "iterations": int(iterations)}
        if not seen.found("AlterUserScramCredentials", "request", **fields):
            return False
    return True


def _created_acl(seen: Decoded, entry: Entry) -> bool:
    # Before 2.0 there were no patterns.
    pattern = {"resource_pattern_type": ACL_CODES[entry["pattern"]]} if "pattern" in entry else {}
    return seen.found(
        "CreateAcls",
        "request",
        resource_type=ACL_CODES[entry["resource_type"]],
        resource_name=entry["resource"],
        **pattern,
        principal=entry["principal"],
        host=entry["host"],
        operation=ACL_CODES[entry["operation"]],
        permission_type=ACL_CODES[entry["permission"]],
    )


def _created_token(seen: Decoded, entry: Entry) -> bool:
    reported = (entry["token_id"], base64.b64decode(entry["hmac"]))
    bodies = [line["body"] for line in seen.messages("CreateDelegationToken", "response", shown=True)]
    return any((body["token_id"], to_bytes(body["hmac"])) == reported for body in bodies)


def _done(seen: Decoded, entry: Entry) -> bool:
    return any(not line["errors"] for line in seen.messages(OPERATIONS[entry["operation"]], "response"))


ADMIN_CHECKS: dict[str, Callable[[Decoded, Entry], bool]] = {
    "altered_credentials": _altered_credentials,
    "altered_quota": _altered_quota,
    "altered_settings": _altered_settings,
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
    "deleted_records": lambda seen, entry: seen.found(
        "DeleteRecords", "response", partition_index=entry["partition"], low_watermark=entry["low_watermark"]
    ),
    "described_acls": lambda seen, entry: entry["count"] in _count(seen, "DescribeAcls", "resources", "acls"),
    "described_cluster": _described_cluster,
    "described_credentials": _described_credentials,
    "described_features": _described_features,
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
    # Version 0 reports where segments begin.
    "old_offsets": lambda seen, entry: seen.found(
        "ListOffsets", "response", partition_index=entry["partition"], old_style_offsets=entry["offsets"]
    ),
    "renewed_token": lambda seen, entry: seen.found(
        "RenewDelegationToken", "response", expiry_timestamp_ms=entry["expiry"], error_code=0
    ),
    "setting": _setting,
    "topic_offsets": lambda seen, entry: all(
        seen.found("ListOffsets", "response", partition_index=one["partition"], offset=int(one["offset"]))
        for one in entry["offsets"]
    ),
}
