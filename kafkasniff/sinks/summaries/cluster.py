"""Summaries of the cluster and its administration: Metadata, ApiVersions, topics, configs."""

from __future__ import annotations

from typing import Final

from kafkasniff.model import Body
from kafkasniff.sinks.names import enum_name
from kafkasniff.sinks.printable import word
from kafkasniff.sinks.summaries.phrases import (
    NO_ID,
    Summarise,
    amount,
    count,
    few,
    first_words,
    lists,
    rows,
    topic_of,
)

__all__ = ["REQUESTS", "RESPONSES"]


def _metadata_request(body: Body) -> str:
    topics = body.get("topics")
    if topics is None:
        return "all topics"
    return few([topic_of(item) for item in rows(topics)]) or "no topics"


def _metadata_response(body: Body) -> str:
    parts = [count(len(lists(body.get("brokers"))), "broker")]
    controller = body.get("controller_id")
    if isinstance(controller, int) and controller >= 0:
        parts.append(f"controller {controller}")
    topics = _described_topics(body)
    return ", ".join([*parts, topics] if topics else parts)


def _described_topics(body: Body) -> str:
    topics = [item for item in rows(body.get("topics")) if not item.get("error_code")]
    return few([f"{topic_of(item)} {_partition_count(item)}" for item in topics])


def _partition_count(item: Body) -> str:
    return f"({count(len(lists(item.get('partitions'))), 'partition')})"


def _api_versions_request(body: Body) -> str:
    name = body.get("client_software_name")
    return f"{word(name)} {word(body.get('client_software_version'))}" if name is not None else ""


def _api_versions_response(body: Body) -> str:
    return count(len(lists(body.get("api_keys"))), "API")


def _create_topics_request(body: Body) -> str:
    parts = []
    for item in rows(body.get("topics")):
        wanted, replicas = item.get("num_partitions"), item.get("replication_factor")
        assigned = lists(item.get("assignments"))
        size = f"{len(assigned)} assigned partitions" if assigned else _wanted(wanted, replicas)
        configs = [f"{word(one.get('name'))}={word(one.get('value'))}" for one in rows(item.get("configs"))]
        parts.append(f"{topic_of(item)} {size}{' ' + few(configs) if configs else ''}")
    return _validated(few(parts, "; "), body)


def _wanted(number: object, replicas: object) -> str:
    # -1 leaves it to the broker (KIP-464).
    told = "default partitions" if number == -1 else f"{number} partition{'' if number == 1 else 's'}"
    return told if replicas == -1 else f"{told} × {replicas}"


def _validated(text: str, body: Body) -> str:
    return f"{text}, validate only" if body.get("validate_only") else text


def _topics_done(body: Body) -> str:
    items = rows(body.get("topics", body.get("responses", body.get("results"))))
    return few([topic_of(item) for item in items if not item.get("error_code")])


def _delete_topics_request(body: Body) -> str:
    if "topic_names" in body:
        return first_words(lists(body["topic_names"]))
    return few([topic_of(item) for item in rows(body.get("topics"))])


def _create_partitions_request(body: Body) -> str:
    parts = [f"{topic_of(item)} to {item.get('count')}" for item in rows(body.get("topics"))]
    return _validated(few(parts), body)


def _resource(item: Body) -> str:
    code = item.get("resource_type")
    kind = (enum_name("config_resource_type", code) or f"type {code}").lower().replace("_", " ")
    name = item.get("resource_name")
    return f"{kind} {word(name)}" if name else f"default {kind}"


def _describe_configs_request(body: Body) -> str:
    parts = []
    for item in rows(body.get("resources")):
        keys = item.get("configuration_keys")
        parts.append(f"{_resource(item)} {'all' if keys is None else first_words(lists(keys))}")
    return few(parts, "; ")


def _describe_configs_response(body: Body) -> str:
    results = [item for item in rows(body.get("results")) if not item.get("error_code")]
    return few([f"{_resource(item)} {count(len(lists(item.get('configs'))), 'config')}" for item in results], "; ")


def _alter_configs_request(body: Body) -> str:
    parts = []
    for item in rows(body.get("resources")):
        changes = []
        for config in rows(item.get("configs")):
            operation = enum_name("alter_config_op", config.get("config_operation", 0)) or "?"
            change = f"{operation.lower()} {word(config.get('name'))}"
            changes.append(change if operation == "DELETE" else f"{change}={word(config.get('value'))}")
        parts.append(f"{_resource(item)} {few(changes)}")
    return _validated(few(parts, "; "), body)


def _alter_configs_response(body: Body) -> str:
    return few([_resource(item) for item in rows(body.get("responses")) if not item.get("error_code")])


def _describe_cluster_response(body: Body) -> str:
    if body.get("error_code"):
        return ""
    brokers = count(len(lists(body.get("brokers"))), "broker")
    return f"cluster {word(body.get('cluster_id'))}, {brokers}, controller {body.get('controller_id')}"


def _telemetry_response(body: Body) -> str:
    if body.get("error_code"):
        return ""
    metrics = lists(body.get("requested_metrics"))
    return f"subscription {body.get('subscription_id')}, {'no metrics' if not metrics else first_words(metrics)}"


def _push_telemetry_request(body: Body) -> str:
    parts = [f"subscription {body.get('subscription_id')}"]
    read = body.get("_metrics")
    if isinstance(read, dict):
        metrics = [metric for resource in rows(read.get("resources")) for metric in rows(resource.get("metrics"))]
        names = few([word(name) for name in dict.fromkeys(metric.get("name") for metric in metrics)], shown=2)
        parts.append(f"{count(len(metrics), 'metric')}{f' ({names})' if names else ''}")
    data = body.get("metrics")
    if isinstance(data, bytes):
        codec = enum_name("compression_codec", body.get("compression_type"))
        parts.append(amount(len(data)) + ("" if codec in {None, "none"} else f" {codec}"))
    if body.get("terminating"):
        parts.append("terminating")
    return ", ".join(parts)


def _telemetry_request(body: Body) -> str:
    instance = body.get("client_instance_id")
    return "new instance" if instance in {None, NO_ID} else f"instance {word(instance)}"


REQUESTS: Final[dict[int, Summarise]] = {
    3: _metadata_request,
    18: _api_versions_request,
    19: _create_topics_request,
    20: _delete_topics_request,
    32: _describe_configs_request,
    33: _alter_configs_request,
    37: _create_partitions_request,
    44: _alter_configs_request,
    71: _telemetry_request,
    72: _push_telemetry_request,
    75: _metadata_request,
}
"""By API key."""

RESPONSES: Final[dict[int, Summarise]] = {
    3: _metadata_response,
    18: _api_versions_response,
    19: _topics_done,
    20: _topics_done,
    32: _describe_configs_response,
    33: _alter_configs_response,
    37: _topics_done,
    44: _alter_configs_response,
    60: _describe_cluster_response,
    71: _telemetry_response,
    75: _described_topics,
}
