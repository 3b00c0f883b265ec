"""Adds decoded keys and values to the records of messages, in place and in order: a stage like `enrich`.

`_key` and `_value` of a record get the schema's type, the name of the value's type and the value. The user says that
there is a registry, so bytes that only look like a schema id are decoded, too, if the registry has the id and the whole
value follows the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import force_setattr

from kafkasniff.kafka.apis.record_fields import each_records, record_fields
from kafkasniff.model import Body, Message, Problem, Summary
from kafkasniff.values.framing import Framing, data_of, framing_of
from kafkasniff.values.readers import Readers
from kafkasniff.values.registries import Registry
from kafkasniff.values.schemas import MAX_VALUE, DecodedValue, MalformedValueError, ValueReader

__all__ = ["Flaws", "ValueDecoder", "ValueSchemas"]

MAX_MESSAGE: Final = 16 << 20
"""Bytes of the keys and values of one message that are decoded: they take several times as much memory."""
_FIELDS: Final = (("key", "_key"), ("value", "_value"))


class ValueSchemas(NamedTuple):
    """Where the schemas of keys and values are."""

    registry: Registry | None = None
    local: Mapping[tuple[str | None, str], ValueReader] = {}
    """Readers by topic and `key` or `value`; they take precedence over the registry."""

    @property
    def ports(self) -> tuple[int, ...]:
        """TCP ports that are connected to."""
        return () if self.registry is None or self.registry.port is None else (self.registry.port,)


class Flaws:
    """Values of one message, or of one row, that could not be decoded."""

    def __init__(self) -> None:
        self.left = MAX_MESSAGE
        self.count = 0
        self.first = ""

    def add(self, field: str, record: Body, what: str) -> None:
        """Take the key or value of a record, and why it is not decoded."""
        if not self.count:
            self.first = f"{field} of the record at offset {record['offset']}: {what}"
        self.count += 1

    @property
    def detail(self) -> str:
        """The first one, and the number of the others."""
        others = f"; {self.count - 1:,} more" if self.count > 1 else ""
        return f"{self.first}{others}"


class ValueDecoder:
    """Decodes the keys and values of messages. Problems are counted in `summary`."""

    def __init__(self, schemas: ValueSchemas, summary: Summary) -> None:
        self._readers = None if schemas.registry is None else Readers(schemas.registry)
        self._local = schemas.local
        self._summary = summary

    @property
    def missing(self) -> list[int | str]:
        """Ids that the registry does not have, and that may be no ids."""
        return [] if self._readers is None else self._readers.missing

    def feed(self, events: Iterable[Any]) -> list[Any]:
        """The events, with the problems of schemas before the messages that refer to them."""
        out: list[Any] = []
        for event in events:
            if type(event) is Message and isinstance(event.body, dict):
                self._message(event, event.body, out)
            out.append(event)
        return out

    def _message(self, message: Message, body: Body, out: list[Any]) -> None:
        key, version = message.api_key, message.api_version
        fields = None if key is None or version is None else record_fields(key, version, message.type)
        if fields is None:
            return
        flaws = Flaws()

        def report(kind: str, detail: str) -> None:
            self._summary.problems += 1
            out.append(
                Problem(
                    kind,
                    detail,
                    connection=message.connection,
                    time_ns=message.time_ns,
                    capture=message.capture,
                    packet=message.last_packet,
                    direction=message.type,
                )
            )

        for records, topic in each_records(fields, body):
            name = topic.decode(errors="replace") if isinstance(topic, bytes) else topic
            # The brokers' own topics have their own formats.
            if name is not None and name.startswith("__"):
                continue
            for batch in records["batches"]:
                if not batch.get("control"):
                    for record in batch.get("records") or ():
                        self.decode(record, name, flaws, report)
        if flaws.count:
            self._summary.problems += 1
            force_setattr(message, "problems", (*message.problems, Problem("schema-value", flaws.detail)))

    def decode(self, record: Body, topic: str | None, flaws: Flaws, report: Callable[[str, str], None]) -> None:
        """Add the decoded key and value to a record of a topic. Hot."""
        for field, target in _FIELDS:
            data = record[field]
            if data.__class__ is bytes:
                self._value(record, field, target, data, self._local.get((topic, field)), flaws, report)

    def _value(  # noqa: PLR0917 - hot: a call for each key and value
        self,
        record: Body,
        field: str,
        target: str,
        data: bytes,
        reader: ValueReader | None,
        flaws: Flaws,
        report: Callable[[str, str], None],
    ) -> None:
        framing = framing_of(record, target, data)
        places: list[Framing | None] = [framing]
        sure = True
        if reader is not None:
            if framing is not None:
                # The data itself may begin like a framing.
                places.insert(1 if framing.sure else 0, None)
        elif framing is not None and self._readers is not None:
            sure = framing.sure
            # Zeros are the rest of a number.
            if sure or data[framing.start :].strip(b"\0"):
                reader = self._readers.get(framing.key, report, sure=sure)
        if reader is None:
            return
        if len(data) > MAX_VALUE or len(data) > flaws.left:
            flaws.add(field, record, f"{len(data):,} bytes are too many to decode")
            return
        flaws.left -= len(data)
        flaw = ""
        for place in places:
            try:
                found = _decoded(reader, place, data)
            except MalformedValueError as error:
                flaw = flaw or f"not decoded by {'its schema' if place is None else f'schema {place.key}'}: {error}"
                continue
            shown: Body = {"format": "schema-file"} if place is None else _named(place)
            shown["schema_type"] = reader.kind
            if found.name is not None:
                shown["name"] = found.name
            shown["value"] = found.value
            record[target] = shown
            return
        if sure:
            flaws.add(field, record, flaw)


def _decoded(reader: ValueReader, framing: Framing | None, data: bytes) -> DecodedValue:
    return reader.read(data, 0) if framing is None else reader.read(*data_of(framing, reader.kind, data))


def _named(framing: Framing) -> Body:
    return {"format": framing.format, ("schema_id" if isinstance(framing.key, int) else "schema_guid"): framing.key}
