"""Options for keys and values of records: how payload is hidden, and the schemas that decode it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.options.shared_options import Command, read_option_file, stacked
from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from kafkasniff.cli.environment import Environment
    from kafkasniff.cli.options.option_groups import OutputOptions
    from kafkasniff.filters import Predicate
    from kafkasniff.model import Summary
    from kafkasniff.redact.payload import Payload
    from kafkasniff.tables.rows.decoded_values import DecodedValues
    from kafkasniff.values.schemas import ValueReader
    from kafkasniff.values.stage import ValueDecoder, ValueSchemas


# Output that is shared without its payload.

RANDOM_BYTES: Final = 32
"""Bytes of a salt generated for one run."""
MIN_SALT: Final = 16
"""Minimum size of a salt file: shorter salts could be brute-forced."""
MAX_SALT: Final = 1 << 20


def payload_options(command: Command) -> Command:
    """Options for keys and values of records, and values of their headers."""
    return stacked(
        command,
        [
            click.option("--no-payload", is_flag=True, help="Show only the lengths of keys and values of records."),
            click.option(
                "--hash-payload", is_flag=True, help="Show salted hashes instead of the keys and values of records."
            ),
            click.option(
                "--hash-salt",
                metavar="FILE",
                help="Salt for --hash-payload; runs with the same salt have comparable hashes.",
            ),
        ],
    )


def take_payload(options: dict[str, Any]) -> Payload:
    """The setting of the options, which are removed from `options`. Raises UsageError."""
    from kafkasniff.redact.payload import SHOWN, Payload

    dropped, hashed, path = (options.pop(name) for name in ("no_payload", "hash_payload", "hash_salt"))
    if path is not None and not hashed:
        raise UsageError("--hash-salt needs --hash-payload")
    if dropped and hashed:
        raise UsageError("--no-payload and --hash-payload cannot be combined")
    if dropped:
        return Payload("dropped")
    if not hashed:
        return SHOWN
    if path is not None:
        return Payload.hashed(_salt(path))
    import secrets

    return Payload.hashed(secrets.token_bytes(RANDOM_BYTES))


def _salt(path: str) -> bytes:
    """A salt from a file, all of it. Raises UsageError."""
    import hashlib

    from kafkasniff.redact.payload import SALT_BYTES

    data = read_option_file(path, MAX_SALT + 1)
    if not MIN_SALT <= len(data) <= MAX_SALT:
        raise UsageError(f"{path}: a salt has at least {MIN_SALT} bytes and at most {MAX_SALT >> 20} MiB")
    return hashlib.blake2b(data, digest_size=SALT_BYTES).digest()


# `--registry` and `--schema`: the schemas of keys and values.

_FIELDS: Final = ("key", "value")
SCHEMAS_NAMED: Final = 10
"""Problems of schemas of rows that are named on stderr."""


def registry_options(command: Command) -> Command:
    """Add the options."""
    return stacked(
        command,
        [
            click.option(
                "--registry",
                metavar="URL|DIR",
                help="Decode keys and values by the schemas of this registry, or of a folder of `schemas fetch`.",
            ),
            click.option(
                "--schema",
                "schemas",
                multiple=True,
                metavar="TOPIC[/key]=FILE",
                help="Decode values (or keys) of a topic by an Avro schema (.avsc), as JSON (.json), or by Protobuf "
                "(.proto, or a descriptor set); FILE#MESSAGE names its message (repeatable).",
            ),
        ],
    )


def take_schemas(options: dict[str, Any], environ: Mapping[str, str]) -> ValueSchemas | None:
    """The schemas of the options, which are removed from `options`; None without any. Raises UsageError."""
    place, files = options.pop("registry"), options.pop("schemas")
    return open_schemas(place, files, environ) if place is not None or files else None


def open_schemas(place: str | None, files: Sequence[str], environ: Mapping[str, str]) -> ValueSchemas:
    """The schemas of a registry, a URL or a folder, and of files (`TOPIC[/key]=FILE`). Raises UsageError."""
    from kafkasniff.values.registries import open_registry
    from kafkasniff.values.stage import ValueSchemas

    return ValueSchemas(None if place is None else open_registry(place, environ), dict(map(_local, files)))


def schemas_of_tasks(
    place: str | None, files: Sequence[str], environ: Mapping[str, str]
) -> Callable[[], ValueSchemas] | None:
    """The same for processes with another working directory, on this machine or others; None without schemas."""
    if place is None and not files:
        return None
    from kafkasniff.values.registries import CA_FILE, TOKEN, USER_INFO

    if place is not None and "://" not in place:
        place = os.path.abspath(place)
    files = [f"{topic}={os.path.abspath(path)}" for topic, _, path in (text.partition("=") for text in files)]
    return partial(
        open_schemas, place, files, {name: environ[name] for name in (USER_INFO, TOKEN, CA_FILE) if name in environ}
    )


def _local(text: str) -> tuple[tuple[str | None, str], ValueReader]:
    from kafkasniff.values.stage import file_reader

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


def row_values(
    schemas: ValueSchemas | None, predicate: Predicate | None, exports: Sequence[str] = ()
) -> DecodedValues | None:
    """What decodes keys and values of the rows of `records`. Raises UsageError if they come too late."""
    if schemas is None:
        return None
    if exports:
        raise UsageError("--registry and --schema need captures; an export has its decoded values")
    from kafkasniff.filters import needs_records
    from kafkasniff.tables.rows.decoded_values import DecodedValues

    if predicate is not None and needs_records(predicate):
        raise UsageError(
            "--registry and --schema decode the rows of tables, which --filter does not see; `kafkasniff sql` can "
            "select by value_decoded->>'$.NAME'"
        )
    return DecodedValues(schemas)


def say_problems(environment: Environment, values: DecodedValues | None) -> None:
    """Name problems of schemas on stderr."""
    for problem in [] if values is None else values.problems[:SCHEMAS_NAMED]:
        environment.say(problem)


def with_records(options: OutputOptions, schemas: ValueSchemas | None) -> OutputOptions:
    """The output with records if it shows decoded values. Raises UsageError if it excludes records."""
    if schemas is None:
        return options
    if options.records is False:
        raise UsageError("--registry and --schema decode records, which --no-records skips")
    form = options.format
    shows = form.records_from == 0 or (form.records_from is not None and options.verbose > 0)
    return options._replace(records=True) if shows else options
