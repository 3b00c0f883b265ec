"""What tables are made with: the options that `export` and `live --export` share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.cli.options import FilterOptions, framing_arguments
from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from kafkasniff.exports.options import ExportOptions
    from kafkasniff.filters import Predicate
    from kafkasniff.payload import Payload

__all__ = ["TABLES", "make_export_options", "rows_line"]

TABLES: Final = ("exchanges", "records", "connections", "problems")


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
    """What an export is made with: `tables` by commas, `options` with those of `inspector_options`.

    `predicate` is that of `filters`.

    Raises UsageError.
    """
    from kafkasniff.exports.options import ExportOptions

    named = [name.strip() for name in tables.split(",") if name.strip()]
    unknown = [name for name in named if name not in TABLES]
    if unknown or not named:
        raise UsageError(f"--tables: {', '.join(unknown) or 'none'}; there are {', '.join(TABLES)}")
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
            (name, value)
            for name in filters.__struct_fields__
            if (value := getattr(filters, name)) not in ((), None, False)
        ),
        **arguments,
    )
    if predicate is not None and made.decode_records != "full":
        from kafkasniff.filters import needs_records

        if needs_records(predicate):
            raise UsageError("--filter asks about records: for tables it needs them in their bodies (--records)")
    return made


def rows_line(rows: Mapping[str, int], directory: str) -> str:
    """How many rows of each table are where."""
    found = ", ".join(f"{count:,} {table if count != 1 else table[:-1]}" for table, count in rows.items())
    return f"{found} in {directory}"
