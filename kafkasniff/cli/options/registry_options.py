"""`--registry` and `--schema`: the schemas of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from kafkasniff.cli.options.option_groups import OutputOptions
    from kafkasniff.filters import Predicate
    from kafkasniff.model import Summary
    from kafkasniff.redact.payload import Payload
    from kafkasniff.values.schemas import ValueReader
    from kafkasniff.values.stage import ValueDecoder, ValueSchemas

__all__ = ["make_values", "registry_options", "take_schemas", "with_records"]

_FIELDS: Final = ("key", "value")

_Command = TypeVar("_Command", bound=Callable[..., Any])


def registry_options(command: _Command) -> _Command:
    """Add the options."""
    for option in (
        click.option(
            "--schema",
            "schemas",
            multiple=True,
            metavar="TOPIC[/key]=FILE",
            help="Decode values (or keys) of a topic by an Avro schema (.avsc), as JSON (.json), or by Protobuf "
            "(.proto, or a descriptor set); FILE#MESSAGE names its message (repeatable).",
        ),
        click.option(
            "--registry",
            metavar="URL|DIR",
            help="Decode keys and values by the schemas of this registry, or of a folder of `schemas fetch`.",
        ),
    ):
        command = option(command)
    return command


def take_schemas(options: dict[str, Any], environ: Mapping[str, str]) -> ValueSchemas | None:
    """The schemas of the options, which are removed from `options`; None without any. Raises UsageError."""
    place, files = options.pop("registry"), options.pop("schemas")
    if place is None and not files:
        return None
    from kafkasniff.values.registries import open_registry
    from kafkasniff.values.stage import ValueSchemas

    return ValueSchemas(
        None if place is None else open_registry(place, environ), dict(map(_local, files)) if files else {}
    )


def _local(text: str) -> tuple[tuple[str | None, str], ValueReader]:
    from kafkasniff.values.readers import file_reader

    topic, separator, path = text.partition("=")
    name, slash, field = topic.partition("/")
    if not separator or not name or not path or (slash and field not in _FIELDS):
        raise UsageError(f"--schema: {text} is not TOPIC=FILE or TOPIC/key=FILE")
    try:
        return (name, field or "value"), file_reader(path)
    except UsageError as error:
        raise UsageError(f"--schema: {error}") from None


def make_values(
    schemas: ValueSchemas | None, records: str, predicate: Predicate | None, payload: Payload, summary: Summary
) -> ValueDecoder | None:
    """The stage that decodes keys and values; None without schemas, or if neither output nor filter needs it."""
    if schemas is None or records != "full":
        return None
    if payload.hides:
        from kafkasniff.filters import needs_records

        if predicate is None or not needs_records(predicate):
            return None
    from kafkasniff.values.stage import ValueDecoder

    return ValueDecoder(schemas, summary)


def with_records(options: OutputOptions, schemas: ValueSchemas | None) -> OutputOptions:
    """The output with records if it shows decoded values. Raises UsageError if it excludes records."""
    if schemas is None:
        return options
    if options.records is False:
        raise UsageError("--registry and --schema decode records, which --no-records skips")
    form = options.format
    shows = form.records_from == 0 or (form.records_from is not None and options.verbose > 0)
    return options._replace(records=True) if shows else options
