"""Numbers as in `decode`, for answers about captures that have the keys of tables instead.

It also explains why connections selected by `--connection` have no messages to show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.options.option_groups import decoding_arguments, reads_twice
from kafkasniff.model import Connection
from kafkasniff.sinks.summaries.phrases import amount, count
from kafkasniff.text.printable import printable

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkasniff.analysis.detectors.finding import Numbers
    from kafkasniff.engine.message_table import Output


def with_numbers(
    environment: Environment, answer: pa.Table, captures: tuple[str, ...], options: Mapping[str, Any], *, text: bool
) -> pa.Table:
    """The answer with columns `connection` and `exchange` in place of the keys of the tables.

    `options`: those of framing; `text`: write `#17` and `conn 3`. The captures are read again; the columns are null if
    that is not possible. Raises CaptureError, UsageError, Interrupted.
    """
    import pyarrow as pa

    names = answer.schema.names
    if "connection_id" not in names:
        return answer
    twice = reads_twice(None, captures)
    if text and not twice:
        return answer
    numbers = read_numbers(environment, captures if answer.num_rows else (), options, exchanges="exchange_id" in names)
    ids = answer.column("connection_id").to_pylist()
    found: dict[str, list[int | None]] = {"connection": [numbers.connection(id_) for id_ in ids]}
    if "exchange_id" in names:
        ordinals = answer.column("exchange_id").to_pylist()
        found["exchange"] = [numbers.exchange(id_, ordinal) for id_, ordinal in zip(ids, ordinals, strict=True)]
    if not text:
        for name, values in found.items():
            answer = answer.append_column(name, pa.array(values, pa.int64()))
        return answer
    for name, mark in (("connection", "conn "), ("exchange", "#")):
        if name in found:
            shown = [None if value is None else f"{mark}{value}" for value in found[name]]
            place = names.index(f"{name}_id")
            answer = answer.set_column(place, name, pa.array(shown, pa.string()))
    return answer


def read_numbers(
    environment: Environment, captures: tuple[str, ...], options: Mapping[str, Any], *, exchanges: bool = True
) -> Numbers:
    """The numbers of captures, which are read again; none of them if that is not possible.

    `options`: those of framing. Raises CaptureError, UsageError, Interrupted.
    """
    from kafkasniff.analysis.detectors.finding import Numbers

    numbers = Numbers()
    if captures and reads_twice(None, captures):
        arguments = decoding_arguments(options)
        for events in read_again(environment, captures, arguments, exchanges=exchanges):
            numbers.feed(events)
    return numbers


def read_again(
    environment: Environment, captures: tuple[str, ...], arguments: Mapping[str, Any], *, exchanges: bool = True
) -> Iterator[list[Output]]:
    """Events of captures that are read a second time, without bodies and records; `arguments`: those of `Inspector`.

    Raises CaptureError, Interrupted.
    """
    from kafkasniff.capture import open_captures
    from kafkasniff.engine.inspector import Inspector

    inspector = Inspector(exchanges=exchanges, connections=True, headers=True, records="skip", **arguments)
    with open_captures(captures, stdin=environment.stdin) as source:
        for batch in source:
            yield from inspector.feed_slices(batch)
    yield from inspector.close_slices()


MAX_SHOWN: Final = 10
"""Maximum number of connections explained."""


def connection_notes(
    environment: Environment,
    numbers: Iterable[int],
    captures: tuple[str, ...],
    options: Mapping[str, Any],
    connections: int,
) -> list[str]:
    """A sentence for each number, from reading the captures again; they have `connections` connections.

    `options`: those of the `Inspector` that decide which bytes are messages. Raises CaptureError, Interrupted.
    """
    wanted = list(dict.fromkeys(numbers))[:MAX_SHOWN]
    found: dict[int, Connection] = {}
    if any(1 <= number <= connections for number in wanted):
        for events in read_again(environment, captures, options, exchanges=False):
            found.update(
                (connection.connection, connection)
                for connection in events
                if type(connection) is Connection and connection.connection in wanted
            )
    return [_sentence(number, found.get(number), connections) for number in wanted]


def _sentence(number: int, connection: Connection | None, last: int) -> str:
    if connection is None:
        if 1 <= number <= last:
            return f"conn {number} carried no data"
        return f"there is no conn {number}: the captures have {count(last, 'connection')}"
    place = f"conn {number}, {printable(str(connection.client))} to {printable(str(connection.broker))},"
    size = f"{amount(connection.client_bytes)} from the client, {amount(connection.broker_bytes)} from the broker"
    if connection.verdict == "kafka":
        return f"{place} is Kafka: {count(connection.requests, 'request')}, {count(connection.responses, 'response')}"
    if connection.verdict == "undecided":
        return f"{place} carried too little to judge: {size}"
    why = f" ({printable(connection.verdict_detail)})" if connection.verdict_detail else ""
    return f"{place} is not Kafka{why}: {size}"
