"""Groups of options shared by several commands, and the objects made from them."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import click

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.options.shared_options import (
    MEMORY,
    Command,
    color_option,
    definitions_option,
    output_option,
    read_option_file,
    read_value,
    stacked,
)
from kafkasniff.errors import MissingExtraError, UsageError
from kafkasniff.sinks.formats import FORMATS, Format, SinkSettings

if TYPE_CHECKING:
    from kafkasniff.cli.output import Output
    from kafkasniff.engine.inspector import Inspector
    from kafkasniff.enrich import Catalog
    from kafkasniff.filters import Predicate, Selector
    from kafkasniff.filters.fields import FilterField
    from kafkasniff.filters.tree import Moment
    from kafkasniff.kafka.messages.rendered import Renderer
    from kafkasniff.redact.payload import Payload
    from kafkasniff.tables.exports.options import ExportOptions


# Filters, and the predicate made from them.


class FilterOptions(NamedTuple):
    """Filters as given: expressions and short forms."""

    filter: tuple[str, ...] = ()
    api: tuple[str, ...] = ()
    topic: tuple[str, ...] = ()
    client_id: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    errors: bool = False
    slower_than: str | None = None
    connection: tuple[int, ...] = ()
    exchange: tuple[int | str, ...] = ()
    """Numbers, and keys of exported tables: `CONNECTION_ID/EXCHANGE_ID`."""
    correlation_id: tuple[int, ...] = ()
    since: str | None = None
    until: str | None = None


_NUMBER: Final = r"-?[0-9]{1,19}"


def _numbers(name: str, text: str, *, keys: bool = False) -> Callable[[Command], Command]:
    """An option for a comma list of numbers, as such or in the notation of text output: `9,12`, `#9`.

    `keys`: or keys of exported tables, which stay text.
    """
    pattern = f"{_NUMBER}(/[0-9]{{1,19}})?" if keys else _NUMBER

    def parsed(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> tuple[int | str, ...]:
        words = [word.strip().removeprefix("#") for one in given for word in one.split(",")]
        wrong = next((word for word in words if not re.fullmatch(pattern, word)), None)
        if wrong is not None:
            raise click.BadParameter(f"{wrong!r} is not a number{', nor CONNECTION_ID/EXCHANGE_ID' if keys else ''}")
        return tuple(word if "/" in word else int(word) for word in words)

    return click.option(name, multiple=True, metavar="N", callback=parsed, help=text)


def filter_options(command: Command) -> Command:
    """Expressions and short forms: a repeated short form is ORed, everything else is ANDed."""
    return stacked(
        command,
        [
            click.option(
                *("-Y", "--filter"),
                multiple=True,
                metavar="EXPR",
                help="Only exchanges that match, such as 'api == \"Fetch\" and latency_ms > 100' (`kafkasniff help "
                "filters`).",
            ),
            click.option("--api", multiple=True, metavar="NAME|KEY", help="Only these APIs (repeatable, comma lists)."),
            click.option(
                "--topic",
                multiple=True,
                metavar="NAME",
                help="Only exchanges that name this topic; *, ? and [] are wildcards.",
            ),
            click.option(
                "--client-id",
                multiple=True,
                metavar="ID",
                help="Only exchanges of this client; *, ? and [] are wildcards.",
            ),
            click.option(
                "--host",
                multiple=True,
                metavar="ADDRESS[:PORT]",
                help="Only exchanges of the client or broker at this address.",
            ),
            click.option("--errors", is_flag=True, help="Only exchanges whose response has an error code."),
            click.option(
                "--slower-than", metavar="DURATION", help="Only exchanges slower than this: 10ms, 1.5s (no unit: ms)."
            ),
            _numbers("--connection", "Only connection N, shown as `conn N` (repeatable, comma lists)."),
            _numbers(
                "--exchange",
                "Only exchange `#N`, or a row: CONNECTION_ID/EXCHANGE_ID.",
                keys=True,
            ),
            _numbers("--correlation-id", "Only correlation id N, shown as `corr N` (repeatable, comma lists)."),
            click.option(
                "--since",
                metavar="TIME",
                help="Only from this time on: RFC 3339, HH:MM:SS (UTC), or +10s after the first packet.",
            ),
            click.option("--until", metavar="TIME", help="Only up to and including this time; same formats."),
        ],
    )


def take_filters(options: dict[str, Any]) -> FilterOptions:
    """The filters among a command's options, from which they are removed."""
    return FilterOptions(**{name: options.pop(name) for name in FilterOptions._fields})


def take_predicate(options: dict[str, Any]) -> Predicate | None:
    """The predicate tree of these filters; None without filters. Raises UsageError."""
    return make_predicate(take_filters(options))


def make_predicate(options: FilterOptions) -> Predicate | None:
    """The predicate tree of the filter options; None without filters. Raises UsageError."""
    if options == FilterOptions():
        return None
    from kafkasniff import filters
    from kafkasniff.filters import And, Compare

    def numbered(field: str, number: int | str) -> Predicate:
        if isinstance(number, int):
            return Compare(field, "==", number)
        connection, _, ordinal = number.partition("/")
        return And((Compare("connection_id", "==", int(connection)), Compare("exchange_id", "==", int(ordinal))))

    def compared(
        option: str, field: str, sign: Literal[">", ">=", "<="], parse: Callable[[str], int | Moment]
    ) -> Predicate | None:
        text = getattr(options, option)
        named = f"--{option.replace('_', '-')}"
        return Compare(field, sign, read_value(named, parse, text)) if text else None

    def numbers(field: Literal["connection", "exchange", "correlation_id"]) -> Predicate | None:
        return filters.any_of(numbered(field, number) for number in getattr(options, field))

    return filters.all_of(
        [
            *map(_expression, options.filter),
            filters.api_filter(options.api) if options.api else None,
            filters.topic_filter(options.topic),
            filters.client_filter(options.client_id),
            filters.any_of(read_value("--host", filters.host_filter, one) for one in options.host),
            filters.error_filter() if options.errors else None,
            compared("slower_than", "latency_ms", ">", filters.parse_duration),
            numbers("connection"),
            numbers("exchange"),
            numbers("correlation_id"),
            compared("since", "time", ">=", filters.parse_moment),
            compared("until", "time", "<=", filters.parse_moment),
        ]
    )


def make_selector(predicate: Predicate | None, *, holds: bool = False) -> Selector | None:
    """A selector for a predicate; None if everything is selected. `holds`: it returns `HeldRequest` requests."""
    if predicate is None:
        return None
    # Imported only if there is a filter: otherwise the first line appears sooner.
    from kafkasniff.filters import Selector

    return Selector(predicate, holds=holds)


def _expression(text: str) -> Predicate:
    # Imported only if there is an expression: most runs have none.
    from kafkasniff.filters.expression import parse_filter

    return read_value("--filter", parse_filter, text)


# Decoding, and output of messages.

DEFAULT_WIDTH: Final = 120
"""Width of the tree if the output is not a terminal."""
MAX_FRAME_LIMIT: Final = 2**31 - 1
"""The length prefix is an int32."""

MAX_TOPIC_IDS: Final = 64 << 20
"""Maximum size of a file with topic ids: some 80 bytes per kept id, and as much again for text that is ignored."""


class OutputOptions(NamedTuple):
    """How messages are written."""

    form: str = "text"
    """A key of `sinks.formats.FORMATS`."""
    output: str | None = None
    records: bool | None = None
    """None: as the format needs."""
    bytes_form: Literal["auto", "base64", "hex"] = "auto"
    color: Literal["auto", "always", "never"] = "auto"
    verbose: int = 0
    hex: int = 0
    fields: tuple[FilterField, ...] = ()
    """Write rows with these fields instead of messages."""

    @property
    def format(self) -> Format:
        """The format of lines or rows."""
        if not self.fields:
            return FORMATS[self.form]
        from kafkasniff.sinks.formats import fields_format

        return fields_format(self.fields, self.form)


_PORT: Final = click.option(
    "--port",
    "ports",
    multiple=True,
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Decode these ports as Kafka and ignore others (repeatable). Default: detect Kafka on any port by content.",
)
_SECRETS: Final = click.option("--show-secrets", is_flag=True, help="Show passwords, SASL tokens and other secrets.")
_FRAME: Final = click.option(
    "--max-frame",
    type=click.IntRange(1, MAX_FRAME_LIMIT),
    metavar="BYTES",
    help="Largest message accepted [default: 100 MiB].",
)
_KEYLOG: Final = click.option(
    "--keylog", metavar="FILE", help="Decrypt TLS with the secrets in this file (SSLKEYLOGFILE format)."
)


def framing_options(command: Command) -> Command:
    """Options that decide what is decoded as Kafka."""
    return stacked(command, [_PORT, _FRAME, _KEYLOG, definitions_option, MEMORY])


def inspector_options(command: Command) -> Command:
    """Framing options, and what is shown of messages."""
    return stacked(command, [_PORT, _SECRETS, _FRAME, _KEYLOG, definitions_option, MEMORY])


def topic_ids_option(command: Command) -> Command:
    """Names for topic ids that do not appear in the capture."""
    text = "Read names of topic ids from FILE: JSON, lines `ID NAME`, or the output of kafka-topics.sh --describe."
    return click.option("--topic-ids", metavar="FILE", help=text)(command)


def reading_options(command: Command) -> Command:
    """Options of commands that decode captures to analyze them: what is Kafka, which exchanges, names of topics."""
    return stacked(command, [framing_options, filter_options, topic_ids_option])


def discard_state_option(command: Command) -> Command:
    """For folders whose state cannot or should not be used."""
    text = "Do not resume connections that were open when the last run into DIR ended; keep their rows as they are."
    return click.option("--discard-state", is_flag=True, help=text)(command)


def _formats_help() -> str:
    *names, last = (one.summary for one in FORMATS.values())
    text = f"{', '.join(names)} or {last}."
    return text[0].upper() + text[1:]


def output_options(command: Command) -> Command:
    """How messages are written."""
    return stacked(
        command,
        [
            click.option(
                "--format",
                "form",
                type=click.Choice(list(FORMATS)),
                default=next(iter(FORMATS)),
                help=_formats_help(),
            ),
            click.option(
                *("-e", "--fields"),
                multiple=True,
                metavar="NAMES",
                help="Write these fields of each exchange, separated by tabs, or as CSV or JSON: 'time,api,latency_ms' "
                "(`kafkasniff help filters` lists them; repeatable).",
            ),
            output_option,
            click.option(
                "--records/--no-records",
                default=None,
                help="Include or skip records [default: included with json and -vv].",
            ),
            click.option(
                "--bytes",
                "bytes_form",
                type=click.Choice(["auto", "base64", "hex"]),
                default="auto",
                help="How JSON shows bytes; auto: as text if they are UTF-8, else base64.",
            ),
            click.option(
                "-x",
                "--hex",
                count=True,
                help="Show the bytes of messages, field by field; -xx: all of them.",
            ),
            color_option,
        ],
    )


no_summary_option = click.option("-q", "--quiet", is_flag=True, help="No progress and no summary on stderr.")
"""`-q` of commands that end with a summary."""


def verbosity_options(command: Command) -> Command:
    """-v, -vv, -q."""
    return stacked(
        command,
        [
            click.option("-v", "--verbose", count=True, help="Show bodies; -vv: records as well."),
            no_summary_option,
        ],
    )


def take_output(options: dict[str, Any]) -> OutputOptions:
    """The output options among a command's options, from which they are removed. Raises UsageError."""
    if options["fields"]:
        for name, given in (("-v", options["verbose"]), ("--hex", options["hex"])):
            if given:
                raise UsageError(f"{name} shows messages, --fields rows: give one of them")
        from kafkasniff.filters.expression import parse_fields

        try:
            options["fields"] = tuple(parse_fields(",".join(options["fields"])))
        except UsageError as error:
            raise UsageError(f"--fields: {error}") from None
    return OutputOptions(**{name: options.pop(name) for name in OutputOptions._fields})


def make_inspector(
    options: dict[str, Any],
    records: Literal["full", "metadata", "batches", "skip"],
    *,
    exchanges: bool,
    grows: bool = False,
    **more: Any,
) -> Inspector:
    """An inspector by `inspector_options`, which are removed from `options`.

    `grows`: the key log is still being written; `more`: further arguments of the inspector.
    """
    from kafkasniff.engine.inspector import Inspector

    arguments = inspector_arguments(options, records, exchanges=exchanges, grows=grows)
    return Inspector(**arguments, **more)


def inspector_arguments(
    options: dict[str, Any],
    records: Literal["full", "metadata", "batches", "skip"],
    *,
    exchanges: bool,
    grows: bool = False,
) -> dict[str, Any]:
    """The arguments of an `Inspector` by `inspector_options`, which are removed from `options`.

    `grows`: the key log is still being written. Raises UsageError.
    """
    arguments = decoding_arguments(options, grows=grows)
    del options["ports"], options["max_frame"], options["keylog"], options["memory"]
    return {"records": records, "exchanges": exchanges, "show_secrets": options.pop("show_secrets"), **arguments}


def make_renderer(options: OutputOptions, payload: Payload) -> Renderer | None:
    """The renderer for bodies that are only needed as JSON; None if they are needed as dicts."""
    if options.format.bodies != "json":
        return None
    from kafkasniff.enrich.plan import shows_nothing
    from kafkasniff.kafka.messages.rendered import Renderer
    from kafkasniff.native.library import kernel

    return Renderer(kernel(), options.bytes_form, shows_nothing, payload.hiding)


def framing_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """The `inspector_options` that decide which bytes are messages, as arguments of `Inspector`."""
    arguments = {"ports": options["ports"]}
    if options["max_frame"] is not None:
        arguments["max_frame"] = options["max_frame"]
    return arguments


def key_arguments(options: Mapping[str, Any], *, grows: bool = False) -> dict[str, Any]:
    """The `inspector_options` that provide secrets, as arguments of `Inspector`. Raises UsageError, MissingExtraError.

    Each call reads the key log again; `grows`: it is still being written.
    """
    path = options["keylog"]
    if path is None:
        return {}
    if importlib.util.find_spec("cryptography") is None:
        raise MissingExtraError("--keylog", "cryptography", "tls")
    from kafkasniff.capture.timeline.key_log_file import open_key_log

    return {"keys": open_key_log(path, grows=grows)}


def decoding_arguments(options: Mapping[str, Any], *, grows: bool = False) -> dict[str, Any]:
    """The arguments of `Inspector` by `framing_options`: those of framing, secrets, and memory. Raises as they do."""
    return {**framing_arguments(options), **key_arguments(options, grows=grows), "memory": options["memory"]}


def make_catalog(options: dict[str, Any]) -> Catalog:
    """A catalog with the names of `topic_ids_option`, which is removed from `options`. Raises UsageError."""
    from kafkasniff.enrich import Catalog

    path = options.pop("topic_ids")
    if path is None:
        return Catalog()
    from kafkasniff.enrich.catalog import parse_topic_ids

    return Catalog(parse_topic_ids(_text_of(path), path))


def reads_twice(wanted: bool | None, captures: tuple[str, ...]) -> bool:
    """Whether to read captures twice; None: if possible. Raises UsageError if it is required and impossible."""
    if wanted is False:
        return False
    from kafkasniff.library import can_be_read_twice

    once = next((name for name in captures if not can_be_read_twice(name)), None)
    if wanted and once is not None:
        raise UsageError(f"--two-pass: {'stdin' if once == '-' else once} can be read only once")
    return once is None


def _text_of(path: str) -> str:
    """Contents of a text file named by an option. Raises UsageError."""
    data = read_option_file(path, MAX_TOPIC_IDS + 1)
    if len(data) > MAX_TOPIC_IDS:
        raise UsageError(f"{path} is longer than {MAX_TOPIC_IDS >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: not UTF-8") from None


def records_wanted(
    options: OutputOptions, predicate: Predicate | None, *, shown: bool = True
) -> Literal["full", "metadata", "batches"]:
    """How far records have to be decoded for the output, if messages are `shown`, and for the filter.

    Raises UsageError if the output excludes records that the filter or the bytes need, or cannot show bytes.
    """
    wanted = options.records
    if options.hex:
        if not options.format.shows_hex:
            raise UsageError(f"--hex needs text, not --format {options.form}")
        if wanted is False:
            raise UsageError("--hex shows records, which --no-records skips")
        return "full"
    asked = {"--filter": predicate}
    if options.fields:
        from kafkasniff.filters import Compare, any_of

        asked["--fields"] = any_of(Compare(field.name, "exists") for field in options.fields)
    for option, one in asked.items():
        if one is None:
            continue
        from kafkasniff.filters import needs_records

        if needs_records(one):
            if wanted is False:
                raise UsageError(f"{option} refers to records, which --no-records skips")
            return "full"
    if not shown:
        return "metadata"
    if wanted is None:
        verbosity = options.format.records_from
        if verbosity is None or options.verbose < verbosity:
            return "metadata"  # lines show the metadata log, and names are learned from it
        wanted = True
    return "full" if wanted else "batches"


def make_settings(
    environment: Environment,
    output: Output,
    options: OutputOptions,
    *,
    captures: bool = False,
    names: Mapping[str, str] | None = None,
    payload: Payload | None = None,
    secrets: bool = False,
) -> SinkSettings:
    """The settings of the sink for `output`.

    `captures`: there are several, so show which one; `names`: address → name, for text;
    `payload`: how payload is shown; `secrets`: those are shown.
    """
    from kafkasniff.redact.payload import SHOWN

    return SinkSettings(
        payload=SHOWN if payload is None else payload,
        captures=captures,
        terminal=output.is_terminal,
        colour=output.coloured(options.color),
        encoding=output.encoding,
        width=environment.width if output.is_terminal else DEFAULT_WIDTH,
        # `--records` requests them as `-vv` does.
        verbosity=2 if options.records and options.verbose else options.verbose,
        hex=options.hex,
        secrets=secrets,
        names=names,
        bytes_form=options.bytes_form,
    )


# Tables of `export` and `live --export`.

TABLES: Final = ("exchanges", "records", "connections", "transport", "problems")


def make_export_options(
    tables: str,
    options: Mapping[str, Any],
    filters: FilterOptions,
    predicate: Predicate | None,
    *,
    bodies: bool,
    headers: bool,
    records: bool,
    payload: Payload,
) -> ExportOptions:
    """The options of an export: `tables` separated by commas, `options` with those of `inspector_options`.

    `predicate` is that of `filters`.

    Raises UsageError.
    """
    from kafkasniff.tables.exports.options import ExportOptions

    named = [name.strip() for name in tables.split(",") if name.strip()]
    unknown = [name for name in named if name not in TABLES]
    if unknown or not named:
        given = f"unknown: {', '.join(unknown)}" if unknown else "no names"
        raise UsageError(f"--tables: {given}; the tables are {', '.join(TABLES)}")
    arguments = framing_arguments(options)
    made = ExportOptions(
        tables=tuple(name for name in TABLES if name in named),
        bodies=bodies,
        headers=headers,
        records=records,
        ports=tuple(sorted(set(arguments.pop("ports")))),
        show_secrets=options["show_secrets"],
        payload=payload,
        filters=tuple(
            (name, value) for name in filters._fields if (value := getattr(filters, name)) not in ((), None, False)
        ),
        **arguments,
    )
    if predicate is not None and made.decode_records != "full":
        from kafkasniff.filters import needs_records

        if needs_records(predicate):
            raise UsageError("--filter refers to records, which export needs --records for")
    return made


def rows_line(rows: Mapping[str, int], directory: str) -> str:
    """Number of rows per table, and the folder."""
    # Rows of `transport` are mostly those of `connections` once more, and have no singular.
    named = {table: count for table, count in rows.items() if table != "transport"} or {
        "connections": sum(rows.values())
    }
    found = ", ".join(f"{count:,} {table if count != 1 else table[:-1]}" for table, count in named.items())
    return f"{found} in {directory}"
