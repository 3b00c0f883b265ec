"""Filters of commands, and the predicate made from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import click

from kafkasniff.cli.options.stacked import Command, stacked
from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from kafkasniff.filters import Predicate, Selector

__all__ = ["FilterOptions", "filter_options", "make_predicate", "make_selector", "take_filters", "take_predicate"]


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

    def numbers(field: Literal["connection", "exchange", "correlation_id"]) -> Predicate | None:
        return filters.any_of(numbered(field, number) for number in getattr(options, field))

    return filters.all_of(
        [
            *map(_expression, options.filter),
            filters.api_filter(options.api) if options.api else None,
            filters.topic_filter(options.topic),
            filters.client_filter(options.client_id),
            filters.any_of(filters.host_filter(one) for one in options.host),
            filters.error_filter() if options.errors else None,
            Compare("latency_ms", ">", filters.parse_duration(options.slower_than)) if options.slower_than else None,
            numbers("connection"),
            numbers("exchange"),
            numbers("correlation_id"),
            Compare("time", ">=", filters.parse_moment(options.since)) if options.since else None,
            Compare("time", "<=", filters.parse_moment(options.until)) if options.until else None,
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

    try:
        return parse_filter(text)
    except UsageError as error:
        raise UsageError(f"--filter: {error}") from None
