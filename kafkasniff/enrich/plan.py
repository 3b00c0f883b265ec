"""Which fields of a message name topics, brokers and records, derived from the definitions, so new APIs need no code.

A plan leads straight to the structs that matter; bodies are never searched. Most messages have no plan.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from kafkasniff.enrich.sessions import uses_sessions
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.definition import FieldDefinition, topic_fields
from kafkasniff.kafka.schema.schema import data_definitions
from kafkasniff.model import Direction

NODE_FIELDS: Final = frozenset({"node_id", "broker_id", "controller_id", "leader_id", "id"})
HOST_FIELDS: Final = frozenset({"host", "host_name", "v0_host"})
PORT_FIELDS: Final = frozenset({"port", "v0_port"})


class NamePlan(msgspec.Struct, frozen=True):
    """The fields of one struct at one version that name something, and the child structs that do."""

    topic: str | None = None
    topic_id: str | None = None
    node: str | None = None
    """Id of the node whose address is in this struct, or in its direct children."""
    host: str | None = None
    port: str | None = None
    rack: str | None = None
    records: tuple[tuple[str, ...], ...] = ()
    """Paths from a struct that names a topic to its `records` fields."""
    children: tuple[tuple[str, NamePlan], ...] = ()
    nested: str | None = None
    """Name under which a message nested in this one is added next to its bytes; only in the plan of a whole message."""

    @property
    def useful(self) -> bool:
        """Whether a message with this plan has to be looked at."""
        return bool(self.topic_id or self.host or self.records or self.children or self.nested)

    @property
    def is_added_to(self) -> bool:
        """Whether names may be added to the struct, or to one in it."""
        return bool(self.topic_id or self.records or self.nested) or any(
            child.is_added_to for _, child in self.children
        )


@lru_cache(maxsize=4096)  # keys and versions come from the wire; 724 are defined
def message_plan(api_key: int, version: int, direction: Direction) -> tuple[NamePlan, bool] | None:
    """The plan of a message and whether it reports names (or only asks for them); None if nothing in it matters.

    Responses report names, and so do requests whose definition has `reports`, because the sender knows them.
    """
    api = dissectors.api(api_key)
    if api is None or version not in api.versions:
        return None
    message = api.definition.request if direction == "request" else api.definition.response
    teaches = direction == "response" or api.definition.reports
    plan = _plan(message.fields, version, nodes=teaches)
    if message.nested is not None:
        plan = msgspec.structs.replace(plan, nested=f"_{message.nested[1]}")
    return (plan, teaches) if plan.useful else None


@lru_cache(maxsize=4096)
def leaves_alone(api_key: int, version: int, direction: Direction) -> bool:
    """Whether an `Enricher` adds nothing to bodies of this kind, whatever it knows. It may learn from them."""
    if uses_sessions(api_key, version):
        return False
    found = message_plan(api_key, version, direction)
    return found is None or not found[0].is_added_to


@lru_cache(maxsize=4096)
def reads_nothing(api_key: int, version: int, direction: Direction) -> bool:
    """Whether an `Enricher` neither adds anything to bodies of this kind nor learns from them.

    The exception are bodies that name one of the brokers' own topics: its records are read if topics have names.
    """
    if uses_sessions(api_key, version):
        return False
    found = message_plan(api_key, version, direction)
    return found is None or named_topics(found[0]) is not None


@lru_cache(maxsize=4096)
def shows_nothing(api_key: int, version: int, direction: Direction) -> bool:
    """Whether nothing that an `Enricher` does with bodies of this kind is visible in the line of any message.

    That is true of broker addresses, which only an `Exchange` shows as ids. For the brokers' own topics see
    `reads_nothing`.
    """
    if reads_nothing(api_key, version, direction):
        return True
    found = message_plan(api_key, version, direction)
    return found is not None and not uses_sessions(api_key, version) and _names_brokers_only(found[0])


@lru_cache(maxsize=4096)
def adds_names(api_key: int, version: int, direction: Direction) -> bool:
    """Whether an `Enricher` adds only names of topic ids and fetch sessions to bodies of this kind.

    The exception are bodies that name one of the brokers' own topics, as in `reads_nothing`.
    """
    found = message_plan(api_key, version, direction)
    return found is None or found[0].nested is None


def teaches(api_key: int, version: int, direction: Direction) -> bool:
    """Whether messages of this kind report the topics that they name, and do not only ask for them."""
    found = message_plan(api_key, version, direction)
    return found is not None and found[1]


@lru_cache(maxsize=4096)
def teaches_topics(api_key: int, version: int, direction: Direction) -> bool:
    """Whether messages of this kind may name topic ids; records of KRaft's metadata log may, too."""
    found = message_plan(api_key, version, direction)
    return found is not None and found[1] and _names_topics(found[0])


def _names_topics(plan: NamePlan) -> bool:
    names = plan.topic is not None and plan.topic_id is not None
    return names or plan.nested is not None or any(_names_topics(child) for _, child in plan.children)


def _names_brokers_only(plan: NamePlan) -> bool:
    if plan.topic_id or plan.records or plan.nested:
        return False
    return all(_names_brokers_only(child) for _, child in plan.children)


def named_topics(plan: NamePlan) -> tuple[str, str] | None:
    """(array of topics, field with the topic's name) if only the records of the brokers' own topics matter.

    That is true of Produce and Fetch before topics had ids.
    """
    if len(plan.children) != 1 or plan.topic_id or plan.records or plan.host or plan.node or plan.nested:
        return None
    (field, topics) = plan.children[0]
    if topics.topic is None or topics.topic_id or topics.children or topics.host or topics.node:
        return None
    return field, topics.topic


@lru_cache(maxsize=1024)  # record types and versions come from the wire
def data_plan(name: str, version: int | None) -> NamePlan | None:
    """The plan of a `data` block: the key or value of a record. A broker wrote it, so it reports names.

    Keys have a single version, which is not on the wire: None.
    """
    definition = data_definitions().get(name)
    if definition is None:
        return None
    if version is None:
        version = definition.message.versions.low
    elif version not in definition.message.versions:
        return None
    plan = _plan(definition.message.fields, version, nodes=True)
    return plan if plan.useful else None


def _plan(fields: tuple[FieldDefinition, ...], version: int, *, nodes: bool) -> NamePlan:
    present = [field for field in fields if version in field.versions]

    def scalar(names: frozenset[str], *types: str) -> str | None:
        field_definitions = (
            field for field in present if field.name in names and field.type in types and not field.array
        )
        return next((field.name for field in field_definitions), None)

    topic, topic_id = topic_fields(present)
    children = [(field.name, _plan(field.fields, version, nodes=nodes)) for field in present if field.fields]
    host, port = scalar(HOST_FIELDS, "string"), scalar(PORT_FIELDS, "int32", "uint16")
    has_address = nodes and host is not None and port is not None
    below = nodes and any(child.host is not None for _, child in children)
    return NamePlan(
        topic=topic,
        topic_id=topic_id,
        node=scalar(NODE_FIELDS, "int32") if has_address or below else None,
        host=host if has_address else None,
        port=port if has_address else None,
        rack=scalar(frozenset({"rack"}), "string") if has_address or below else None,
        records=tuple(_records(present, version)) if topic is not None or topic_id is not None else (),
        children=tuple((name, child) for name, child in children if child.useful),
    )


def _records(fields: list[FieldDefinition], version: int) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for field in fields:
        if field.type == "records":
            found.append((field.name,))
        inner = [one for one in field.fields if version in one.versions]
        found += [(field.name, *rest) for rest in _records(inner, version)]
    return found
