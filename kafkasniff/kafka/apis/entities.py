"""The subjects of an exchange: topics, partitions, groups and transactional ids that its two bodies name.

The definitions show which fields name what (`entity topic`, `entity group` …), so a new API or version is covered by
its definition. For each (API, direction) an `EntityPlan` over all versions is made once, which leads straight to the
fields that matter; bodies are never searched.

The `records` fields of a message may be anywhere in its definition: in arrays, structs and tags. Interpreters of
records (secrets of Kafka Connect, schema ids, the metadata log) use `record_fields`, so that the records of a new API
only need its definition.

The records of KRaft's metadata log contain credentials and sensitive configuration, so nothing is shown of those that
cannot be decoded. The name and the fixed id of its topic are Topic.CLUSTER_METADATA_TOPIC_NAME
(`org.apache.kafka.common.internals`) and Uuid.METADATA_TOPIC_ID. Kafka sends them in Fetch responses; any message that
has records of a topic by its definition may have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from kafkasniff.kafka.apis.dissectors import api, message_of
from kafkasniff.kafka.schema.codes import ZERO_UUID, error_name, uuid_bytes
from kafkasniff.kafka.schema.context import RenderedRecords
from kafkasniff.kafka.schema.definition import EntityChoice, FieldDefinition, Struct
from kafkasniff.model import Body, Direction, Message

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"


class _TopicStruct(msgspec.Struct, frozen=True):
    """A struct that names a topic and has its records, over all versions of its message."""

    path: tuple[str, ...]
    """Its path: the fields from the body, arrays or structs."""
    names: tuple[FieldDefinition, ...]
    """Fields with the topic's name."""
    ids: tuple[FieldDefinition, ...]
    """Fields with its id."""
    records: tuple[tuple[str, ...], ...]
    """The paths from it to its records."""


def secret_marks(api_key: int, direction: Direction, version: int) -> tuple[bytes, ...]:
    """Bytes without which a truncated message contains no metadata records; none if it cannot contain any.

    FetchSnapshot is not covered: it contains nothing else, as its definition says.
    """
    message = message_of(api_key, direction)
    if message is None:
        return ()

    def there(fields: tuple[FieldDefinition, ...]) -> bool:
        # In an unknown version the names of topics may be in any field.
        return any(version in field.versions for field in fields) or (bool(fields) and version not in message.versions)

    topics = _topics(api_key, direction)
    marks = [METADATA_TOPIC.encode()] if any(there(topic.names) for topic in topics) else []
    return (*marks, uuid_bytes(METADATA_TOPIC_ID)) if any(there(topic.ids) for topic in topics) else tuple(marks)


def metadata_test(api_key: int, direction: Direction) -> Callable[[Body], bool] | None:
    """A test whether a body contains records of the metadata log; None if bodies of this API never do."""
    message = message_of(api_key, direction)
    if message is None or not message.has_records:
        return None
    if message.has_secret_records:
        return bool
    topics = _topics(api_key, direction)
    if len(topics) == 1 and len(topics[0].path) == 1 and len(topics[0].names) < 2 and len(topics[0].ids) < 2:
        return _quick_test(topics[0])
    return (lambda body: any(True for _ in _metadata_topics(topics, body))) if topics else None


def _quick_test(topic: _TopicStruct) -> Callable[[Body], bool]:
    """The test for Kafka's own messages, which have one array of topics. Hot: called for each of them."""
    (array,) = topic.path
    name = topic.names[0].name if topic.names else ""
    topic_id = topic.ids[0].name if topic.ids else ""

    def test(body: Body) -> bool:
        for one in body.get(array) or ():
            if one.get(name) == METADATA_TOPIC or one.get(topic_id) == METADATA_TOPIC_ID:
                return True
        return False

    return test


def may_hold_topic(api_key: int, direction: Direction) -> bool:
    """Whether such messages have records of topics that they name, which may be the metadata log."""
    return bool(_topics(api_key, direction))


def metadata_records(api_key: int, direction: Direction, body: Body) -> Iterator[Any]:
    """Each `records` value of the metadata log in a body; values may be null."""
    for topic, struct in _metadata_topics(_topics(api_key, direction), body):
        for path in topic.records:
            yield from _at(struct, path)


def _metadata_topics(topics: tuple[_TopicStruct, ...], body: Body) -> Iterator[tuple[_TopicStruct, Body]]:
    for topic in topics:
        for struct in _at(body, topic.path):
            if isinstance(struct, dict) and (
                any(struct.get(field.name) == METADATA_TOPIC for field in topic.names)
                or any(struct.get(field.name) == METADATA_TOPIC_ID for field in topic.ids)
            ):
                yield topic, struct


def _at(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """The values at the end of a path, through arrays; of a truncated body those that exist."""
    if isinstance(value, list):
        for one in value:
            yield from _at(one, path)
    elif not path:
        yield value
    elif isinstance(value, dict) and path[0] in value:
        yield from _at(value[path[0]], path[1:])


@lru_cache(maxsize=1024)  # keys come from the wire
def _topics(api_key: int, direction: Direction) -> tuple[_TopicStruct, ...]:
    """The structs of a message that name a topic and have records, except those that are always secret."""
    message = message_of(api_key, direction)
    return () if message is None else tuple(_topics_in(message.fields, ()))


def _topics_in(fields: tuple[FieldDefinition, ...], path: tuple[str, ...]) -> Iterator[_TopicStruct]:
    names = tuple(field for field in fields if field.entity == "topic_name" and not field.array)
    ids = tuple(field for field in fields if (field.name, field.type, field.array) == ("topic_id", "uuid", False))
    records = tuple(_record_paths(fields))
    if records and (names or ids):
        yield _TopicStruct(path, names, ids, records)
    for field in fields:
        yield from _topics_in(field.fields, (*path, field.name))


def _record_paths(fields: tuple[FieldDefinition, ...]) -> Iterator[tuple[str, ...]]:
    for field in fields:
        if field.type == "records" and field.secret == "no":
            yield (field.name,)
        for path in _record_paths(field.fields):
            yield (field.name, *path)


PARTITION_FIELDS: Final = frozenset({"index", "partition", "partition_index"})
"""Names of int32 fields with a partition number."""


class RecordFields(msgspec.Struct, frozen=True):
    """The `records` fields of one struct, and its nested structs with such fields."""

    topic: str | None
    """The field that names the topic of all records in the struct; None if there is none."""
    plain: tuple[str, ...]
    """Records of any topic."""
    secret: tuple[str, ...]
    """Records that may be shown only as far as they were decoded: those of the metadata log."""
    inner: tuple[tuple[str, RecordFields], ...]


@lru_cache(maxsize=4096)  # keys and versions come from the wire
def record_fields(api_key: int, version: int, direction: Direction) -> RecordFields | None:
    """The `records` fields of a message; None if it has none, or its layout is unknown."""
    found = api(api_key)
    if found is None or version not in found.versions:
        return None
    schema = found.request(version) if direction == "request" else found.response(version)
    return _of(schema.root) if schema.root.records else None


def _of(struct: Struct) -> RecordFields:
    fields = (*struct.fields, *struct.tagged)
    records = [field for field in fields if field.type == "records"]
    topics = (field.name for field in fields if field.entity == "topic_name" and not field.array)
    return RecordFields(
        topic=next(topics, None),
        plain=tuple(field.name for field in records if field.secret == "no"),
        secret=tuple(field.name for field in records if field.secret != "no"),
        inner=tuple(
            (field.name, _of(field.struct)) for field in fields if field.struct is not None and field.struct.records
        ),
    )


def each_records(
    fields: RecordFields, body: Body, topic: Any = None, *, secret: bool = False
) -> Iterator[tuple[Body, Any]]:
    """Each decoded `records` value of a body that is not null, and the name of its topic if the body has it.

    `secret`: those that are secret, else all others. `topic` is the one named by a struct around `body`.
    """
    if fields.topic is not None:
        topic = body.get(fields.topic)
    elif "_topic_name" in body:
        topic = body["_topic_name"]
    for name in fields.secret if secret else fields.plain:
        value = body.get(name)
        for one in value if isinstance(value, list) else (value,):
            # Rendered records need no interpreter, or they would have been decoded.
            if one is not None and one.__class__ is not RenderedRecords:
                yield one, topic
    for name, inner in fields.inner:
        value = body.get(name)
        for one in value if isinstance(value, list) else (value,):
            if one is not None:
                yield from each_records(inner, one, topic, secret=secret)


def each_whole(struct: Struct, body: Body) -> Iterator[tuple[Any, str, int | None]]:
    """Each `records` value of a body that must end with a whole batch, its field, and its partition if named.

    This includes rendered values.
    """
    fields = (*struct.fields, *struct.tagged)
    index = next((field.name for field in fields if field.name in PARTITION_FIELDS and field.type == "int32"), None)
    for field in fields:
        value = body.get(field.name)
        for one in value if isinstance(value, list) else (value,):
            if one is None:
                continue
            if field.whole:
                yield one, field.name, None if index is None else body.get(index)
            elif field.struct is not None and field.struct.whole_records:
                yield from each_whole(field.struct, one)


BATCH_OVERHEAD: Final = 12
"""Bytes before those that `batch_length` counts: base offset and the length itself, alike in all three formats."""

INDEX_LIST_FIELDS: Final = frozenset({"partitions", "partition_indexes"})
ERROR_FIELDS: Final = ("error_code", "partition_error_code")
END_FIELDS: Final = ("high_watermark", "last_stable_offset")
# In this order, the response's before the request's: results are more informative than requests.
RESPONSE_OFFSET_FIELDS: Final = ("base_offset", "offset", "committed_offset", "end_offset", "start_offset")
REQUEST_OFFSET_FIELDS: Final = ("fetch_offset", "committed_offset", "offset", "start_offset")


class PartitionFacts(msgspec.Struct):
    """Values of one topic-partition in an exchange, None if missing; `tables.rows.schemas` has the meanings."""

    topic: str | None
    topic_id: str | None
    partition: int
    error_code: int | None = None
    error: str | None = None
    offset: int | None = None
    high_watermark: int | None = None
    record_count: int | None = None
    batch_count: int | None = None
    bytes: int | None = None
    uncompressed_bytes: int | None = None
    compression: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    base_sequence: int | None = None
    last_stable_offset: int | None = None


class Mentions(msgspec.Struct):
    """Everything that an exchange names, in order of first appearance, the request's before the response's."""

    topics: dict[str, None] = {}
    """By name, including those of a fetch session."""
    unnamed: dict[str, int] = {}
    """Topic ids without a name, each with the number of topics before it."""
    partitions: dict[tuple[str | None, str | None, int], PartitionFacts] = {}
    """By (topic id, None, partition), or (None, topic, partition) if there is no id."""
    groups: dict[str, None] = {}
    """Groups that the request names."""
    transactions: dict[str, None] = {}
    """Transactional ids that the request names."""


class EntityPlan(msgspec.Struct, frozen=True):
    """The fields of one struct that name something, over all versions, and the paths to nested ones."""

    topic: str | None = None
    topic_lists: tuple[str, ...] = ()
    topic_id: str | None = None
    groups: tuple[str, ...] = ()
    transactions: tuple[str, ...] = ()
    choices: tuple[tuple[str, EntityChoice], ...] = ()
    """Fields that name groups or transactional ids, depending on another field."""
    index: str | None = None
    index_lists: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    children: tuple[tuple[str, EntityPlan], ...] = ()
    offsets: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    """Fields of a partition: its offset (the first one counts); its error; where its log ends for consumers."""
    nested: str | None = None
    """The name of the nested message's value, beside its bytes; only for a whole message."""


NOTHING: Final = EntityPlan()

_Collect = Callable[["Mentions", Body, str | None, str | None], None]


def text(value: object) -> str | None:
    r"""A string from the wire as text: bytes that are not UTF-8 as `\xNN`; None for anything else."""
    if isinstance(value, str):
        return value
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else None


def only(names: dict[str, None]) -> str | None:
    """The name if there is exactly one, otherwise None."""
    return next(iter(names)) if len(names) == 1 else None


def record_count(named: Mentions) -> int | None:
    """Records of all partitions; None if none has a records field, or a count is unknown."""
    counts = [facts.record_count for facts in named.partitions.values() if facts.batch_count is not None]
    return None if not counts or None in counts else sum(count for count in counts if count is not None)


def mentions(request: Message | None, response: Message | None) -> Mentions:
    """Everything that an exchange names. Undecoded bodies name nothing; a truncated body names what it contains."""
    named = Mentions()
    for message in (request, response):
        if message is None or message.body is None or message.api_key is None:
            continue
        _collect(named, message.api_key, message.type, message.body)
        for topic in message.session_topics:
            named.topics[topic] = None
    return named


def _collect(named: Mentions, key: int, direction: Direction, body: Body) -> None:
    """The names in a body, and the body of a nested message."""
    found = _collector_of(key, direction)
    if found is None:
        return
    collect, nested = found
    collect(named, body, None, None)
    inside = None if nested is None else body.get(nested)
    if inside is not None and inside["api_key"] is not None and inside["body"] is not None:
        _collect(named, inside["api_key"], direction, inside["body"])


def _name(into: dict[str, None], value: object) -> None:
    name = text(value)
    if name is not None:
        into[name] = None


@lru_cache(maxsize=1024)  # keys of requests that nobody knows come from the wire
def plan_of(api_key: int, direction: Direction) -> EntityPlan | None:
    """The plan of an API's requests or responses; None for an unknown API."""
    message = message_of(api_key, direction)
    if message is None:
        return None
    plan = _plan(message.fields, RESPONSE_OFFSET_FIELDS if direction == "response" else REQUEST_OFFSET_FIELDS)
    return plan if message.nested is None else msgspec.structs.replace(plan, nested=f"_{message.nested[1]}")


@lru_cache(maxsize=1024)  # as above
def _collector_of(api_key: int, direction: Direction) -> tuple[_Collect, str | None] | None:
    """The walker of the bodies of an API's requests or responses, and the place of a nested message; None as above."""
    plan = plan_of(api_key, direction)
    return None if plan is None else (_collector(plan, request=direction == "request"), plan.nested)


def _plan(fields: tuple[FieldDefinition, ...], offsets: tuple[str, ...]) -> EntityPlan:
    """`offsets`: fields with a partition's offset, the first of which counts."""

    def named(entity: str, *, array: bool | None = None) -> tuple[str, ...]:
        return tuple(field.name for field in fields if field.entity == entity and array in (None, field.array))

    def numbers(names: frozenset[str], *, array: bool) -> tuple[str, ...]:
        return tuple(
            field.name for field in fields if field.name in names and field.type == "int32" and field.array == array
        )

    children = [(field.name, _plan(field.fields, offsets)) for field in fields if field.fields]
    names = frozenset(field.name for field in fields)
    index = next(iter(numbers(PARTITION_FIELDS, array=False)), None)
    return EntityPlan(
        topic=next(iter(named("topic_name", array=False)), None),
        topic_lists=named("topic_name", array=True),
        topic_id=next((field.name for field in fields if field.name == "topic_id" and field.type == "uuid"), None),
        groups=named("group_id"),
        transactions=named("transactional_id"),
        choices=tuple((field.name, field.entity_by) for field in fields if field.entity_by is not None),
        index=index,
        index_lists=numbers(INDEX_LIST_FIELDS, array=True),
        records=tuple(field.name for field in fields if field.type == "records" and not field.array),
        children=tuple((name, plan) for name, plan in children if plan != NOTHING),
        offsets=() if index is None else tuple(name for name in offsets if name in names),
        errors=() if index is None else tuple(name for name in ERROR_FIELDS if name in names),
        ends=() if index is None else tuple(name for name in END_FIELDS if name in names),
    )


def _collector(plan: EntityPlan, *, request: bool) -> _Collect:
    """The walker of one struct along its plan; known facts are not overwritten. Hot.

    It is called with the collector, the struct, and the topic and topic id of the enclosing struct. Everything that a
    plan lacks is checked here, once, and costs next to nothing later.
    """
    named_by, identified_by, index, ends = plan.topic, plan.topic_id, plan.index, () if request else plan.ends
    lists, index_lists, offsets, errors, records = (
        plan.topic_lists,
        plan.index_lists,
        plan.offsets,
        () if request else plan.errors,
        plan.records,
    )
    asks = request and bool(plan.groups or plan.transactions or plan.choices)
    has_partitions = index is not None or bool(index_lists)
    children = tuple((name, _collector(child, request=request)) for name, child in plan.children)

    def collect(named: Mentions, body: Body, topic: str | None, topic_id: str | None) -> None:
        if named_by is not None:
            topic = text(body.get(named_by))
            if topic is not None:
                named.topics[topic] = None
        if identified_by is not None:
            if named_by is None:
                topic = None  # its id names another topic than the struct around it
            value = body.get(identified_by)
            topic_id = value if isinstance(value, str) and value != ZERO_UUID else None
            if topic is None and "_topic_name" in body:
                topic = text(body["_topic_name"])
                _name(named.topics, topic)
            if topic is None and topic_id is not None and topic_id not in named.unnamed:
                named.unnamed[topic_id] = len(named.topics)
        for field in lists:
            for value in body.get(field) or ():
                _name(named.topics, value)
        if asks:
            _asked(named, plan, body)
        if has_partitions and (topic is not None or topic_id is not None):
            number = None if index is None else body.get(index)
            if isinstance(number, int):
                facts = _facts(named, topic, topic_id, number)
                for field in offsets:
                    value = body.get(field)
                    if isinstance(value, int):
                        facts.offset = value  # the response comes second and overrides the request
                        break
                for field in ends:
                    setattr(facts, field, body.get(field, getattr(facts, field)))
                for field in errors:
                    value = body.get(field)
                    if isinstance(value, int) and facts.error_code is None:
                        facts.error_code = value
                        facts.error = error_name(value) if value else None
                for field in records:
                    value = body.get(field)
                    if isinstance(value, dict):
                        _batches(facts, value)
            for field in index_lists:
                for value in body.get(field) or ():
                    _facts(named, topic, topic_id, value)
        for field, child in children:
            value = body.get(field)
            if value.__class__ is list:
                for one in value:
                    if isinstance(one, dict):
                        child(named, one, topic, topic_id)
            elif isinstance(value, dict):
                child(named, value, topic, topic_id)

    return collect


def _asked(named: Mentions, plan: EntityPlan, body: Body) -> None:
    """Groups and transactional ids that a struct of a request names."""
    for field in plan.groups:
        _names(named.groups, body.get(field))
    for field in plan.transactions:
        _names(named.transactions, body.get(field))
    for field, choice in plan.choices:
        entity = dict(choice.entities).get(body.get(choice.field, 0))
        if entity == "group_id":
            _names(named.groups, body.get(field))
        elif entity == "transactional_id":
            _names(named.transactions, body.get(field))


def _names(into: dict[str, None], value: object) -> None:
    for one in value if isinstance(value, list) else (value,):
        _name(into, one)


def _facts(named: Mentions, topic: str | None, topic_id: str | None, partition: int) -> PartitionFacts:
    key = (topic_id, topic if topic_id is None else None, partition)
    facts = named.partitions.get(key)
    if facts is None:
        facts = named.partitions[key] = PartitionFacts(topic, topic_id, partition)
    elif facts.topic is None:
        # The name became known between the request and the response.
        facts.topic = topic
    return facts


def _uncompressed(batch: dict[str, Any]) -> int | None:
    """Bytes of a batch before compression; None if it was not decoded, and for a legacy wrapper."""
    if batch["compression"] == "none":
        size: int = BATCH_OVERHEAD + batch["batch_length"]
        return size
    # From `records.batches.Batch`; batches whose records were not read are plain.
    found: int | None = getattr(batch, "uncompressed", None)
    return found


def _batch(facts: PartitionFacts, batch: dict[str, Any], truncated: int) -> None:
    """Like `_batches`, for a single one."""
    facts.batch_count = 1
    facts.record_count = batch.get("record_count")
    facts.bytes = BATCH_OVERHEAD + batch["batch_length"] + truncated
    uncompressed = _uncompressed(batch)
    if uncompressed is not None:
        facts.uncompressed_bytes = uncompressed + truncated
    facts.compression = batch["compression"]
    facts.producer_id = batch.get("producer_id")
    facts.producer_epoch = batch.get("producer_epoch")
    facts.base_sequence = batch.get("base_sequence")


def _batches(facts: PartitionFacts, records: dict[str, Any]) -> None:
    """Values of a partition from the contract's form of a `records` field."""
    batches: list[dict[str, Any]] = records["batches"]
    if len(batches) == 1:
        # True nearly always if messages are small.
        _batch(facts, batches[0], records["truncated_bytes"])
        return
    counts: list[Any] = [batch.get("record_count") for batch in batches]
    codecs = {batch["compression"] for batch in batches}
    size = sum(BATCH_OVERHEAD + batch["batch_length"] for batch in batches) + records["truncated_bytes"]
    facts.batch_count = len(batches)
    facts.record_count = None if None in counts else sum(counts)
    facts.bytes = size
    sizes = [_uncompressed(batch) for batch in batches]
    if None not in sizes:
        facts.uncompressed_bytes = sum(filter(None, sizes)) + records["truncated_bytes"]
    facts.compression = "mixed" if len(codecs) > 1 else next(iter(codecs), None)
    for batch in batches[:1]:
        facts.producer_id = batch.get("producer_id")
        facts.producer_epoch = batch.get("producer_epoch")
        facts.base_sequence = batch.get("base_sequence")
