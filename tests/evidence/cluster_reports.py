"""What administrators of clusters report, held against the golden lines: voters, replicas that move, features."""

from __future__ import annotations

from collections.abc import Callable

from tests.evidence.decoded import Decoded, Entry, has, objects


def _answered(seen: Decoded, api: str) -> bool:
    """Whether a response of an API is without any error."""
    return any(not line["errors"] for line in seen.messages(api, "response"))


def _added_voter(seen: Decoded, entry: Entry) -> bool:
    wanted = {"voter_id": entry["node"], "voter_directory_id": entry["directory_id"]}
    return _answered(seen, "AddRaftVoter") and any(
        has(line["body"], wanted) and any(one["port"] == entry["port"] for one in line["body"]["listeners"])
        for line in seen.messages("AddRaftVoter", "request")
    )


def _removed_voter(seen: Decoded, entry: Entry) -> bool:
    wanted = {"voter_id": entry["node"], "voter_directory_id": entry["directory_id"]}
    return _answered(seen, "RemoveRaftVoter") and seen.found("RemoveRaftVoter", "request", **wanted)


def _reassigned(seen: Decoded, entry: Entry) -> bool:
    """The replicas that a partition is to have; null where that is called off."""
    return any(
        has(topic, {"name": entry["topic"]})
        and any(has(one, {"replicas": entry.get("replicas")}) for one in topic["partitions"])
        for line in seen.messages("AlterPartitionReassignments", "request")
        for topic in line["body"]["topics"]
    )


def _moved_replica(seen: Decoded, entry: Entry) -> bool:
    return _answered(seen, "AlterReplicaLogDirs") and any(
        has(folder, {"path": entry["folder"]})
        and any(has(topic, {"name": entry["topic"], "partitions": [entry["partition"]]}) for topic in folder["topics"])
        for line in seen.messages("AlterReplicaLogDirs", "request")
        for folder in line["body"]["dirs"]
    )


def _aborted_transaction(seen: Decoded, entry: Entry) -> bool:
    wanted = {
        "producer_id": entry["producer_id"],
        "producer_epoch": entry["producer_epoch"],
        "transaction_result": False,
    }
    return any(
        has(marker, wanted)
        and any(
            has(one, {"name": entry["topic"], "partition_indexes": [entry["partition"]]}) for one in objects(marker)
        )
        for line in seen.messages("WriteTxnMarkers", "request")
        for marker in line["body"]["markers"]
    )


def _elected_leader(seen: Decoded, entry: Entry) -> bool:
    return any(
        not line["errors"] and has(one, {"topic": entry["topic"]})
        for line in seen.messages("ElectLeaders", "response")
        for one in objects(line["body"])
    ) and seen.found("ElectLeaders", "request", election_type=entry["election_type"])


CLUSTER_CHECKS: dict[str, Callable[[Decoded, Entry], bool]] = {
    "aborted_transaction": _aborted_transaction,
    "added_voter": _added_voter,
    "cancelled_reassignment": _reassigned,
    "elected_leader": _elected_leader,
    "moved_replica": _moved_replica,
    "reassigned": _reassigned,
    "removed_voter": _removed_voter,
    "replaced_settings": lambda seen, entry: (
        _answered(seen, "AlterConfigs")
        and all(
            seen.found("AlterConfigs", "request", name=name, value=value) for name, value in entry["settings"].items()
        )
    ),
    "described_topology": lambda seen, entry: (
        all(seen.found("StreamsGroupDescribe", "response", name=name) for name in entry["nodes"])
        and all(seen.found("StreamsGroupTopologyDescriptionUpdate", "request", name=name) for name in entry["nodes"])
    ),
    "unregistered_broker": lambda seen, entry: (
        seen.found("UnregisterBroker", "request", broker_id=entry["broker"])
        and seen.found("UnregisterBroker", "response", error_code=0)
    ),
    "unregistered_controller": lambda seen, entry: (
        seen.found("UnregisterController", "request", controller_id=entry["controller"])
        and seen.found("UnregisterController", "response", error_code=0)
    ),
    "updated_feature": lambda seen, entry: (
        seen.found("UpdateFeatures", "request", feature=entry["feature"], max_version_level=entry["level"])
        and _answered(seen, "UpdateFeatures")
    ),
}
