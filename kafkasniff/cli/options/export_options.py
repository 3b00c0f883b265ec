"""Options for tables that `export` and `live --export` share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.cli.options.filter_options import FilterOptions
from kafkasniff.cli.options.option_groups import framing_arguments
from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from kafkasniff.filters import Predicate
    from kafkasniff.redact.payload import Payload
    from kafkasniff.tables.exports.options import ExportOptions

__all__ = ["TABLES", "make_export_options", "rows_line"]

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
