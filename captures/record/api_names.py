"""Kafka's API keys under the names that clients print in their logs.

Written down here once more, apart from the product's definitions: a sidecar is evidence against which the product is
held.
"""

from __future__ import annotations

# In order of their keys, 0 and up (org.apache.kafka.common.protocol.ApiKeys of 4.4).
# fmt: off
_NAMES = [
    "Produce", "Fetch", "ListOffsets", "Metadata", "LeaderAndIsr", "StopReplica", "UpdateMetadata",
    "ControlledShutdown", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup",
    "SyncGroup", "DescribeGroups", "ListGroups", "SaslHandshake", "ApiVersions", "CreateTopics", "DeleteTopics",
    "DeleteRecords", "InitProducerId", "OffsetForLeaderEpoch", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn",
    "WriteTxnMarkers", "TxnOffsetCommit", "DescribeAcls", "CreateAcls", "DeleteAcls", "DescribeConfigs",
    "AlterConfigs", "AlterReplicaLogDirs", "DescribeLogDirs", "SaslAuthenticate", "CreatePartitions",
    "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
    "DeleteGroups", "ElectLeaders", "IncrementalAlterConfigs", "AlterPartitionReassignments",
    "ListPartitionReassignments", "OffsetDelete", "DescribeClientQuotas", "AlterClientQuotas",
    "DescribeUserScramCredentials", "AlterUserScramCredentials", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch",
    "DescribeQuorum", "AlterPartition", "UpdateFeatures", "Envelope", "FetchSnapshot", "DescribeCluster",
    "DescribeProducers", "BrokerRegistration", "BrokerHeartbeat", "UnregisterBroker", "DescribeTransactions",
    "ListTransactions", "AllocateProducerIds", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe",
    "ControllerRegistration", "GetTelemetrySubscriptions", "PushTelemetry", "AssignReplicasToDirs",
    "ListConfigResources", "DescribeTopicPartitions", "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch",
    "ShareAcknowledge", "AddRaftVoter", "RemoveRaftVoter", "UpdateRaftVoter", "InitializeShareGroupState",
    "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary",
    "StreamsGroupHeartbeat", "StreamsGroupDescribe", "DescribeShareGroupOffsets", "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets", "StreamsGroupTopologyDescriptionUpdate", "UnregisterController",
]
# fmt: on

# How some clients call them.
_ALIASES = {
    "apiversion": 18,
    "groupcoordinator": 10,
    "consumermetadata": 10,
    "producer": 0,
    "topicmetadata": 3,
    "offset": 2,
    "offsets": 2,
    "listoffset": 2,
    "electpreferredleaders": 43,
    "alterisr": 56,
    "listclientmetricsresources": 74,
}

_KEYS = {name.lower(): key for key, name in enumerate(_NAMES)} | _ALIASES


def api_key(name: str) -> int:
    """Key of an API by any client's spelling (``PRODUCE``, ``ApiVersion``, ``LIST_OFFSETS``). Raises ``KeyError``."""
    return _KEYS[name.replace("_", "").lower()]


def api_name(key: int) -> str:
    """Name of an API as Kafka's schema files have it."""
    return _NAMES[key]
