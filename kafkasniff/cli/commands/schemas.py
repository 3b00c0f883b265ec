"""`kafkasniff schemas`: copies of a schema registry, for work without network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkasniff.packets import PacketBatch
    from kafkasniff.values.learning import HttpSegment

MAX_LINES: Final = 20
"""Skipped exchanges that are reported one by one."""


@click.command("schemas", cls=SectionedCommand)
@click.argument("action", type=click.Choice(["fetch", "learn"]))
@click.argument("captures", nargs=-1, metavar="[CAPTURE...]")
@click.option("--registry", metavar="URL", help="For fetch: the registry; credentials as for `decode --registry`.")
@click.option("-o", "--output", required=True, metavar="DIR", help="Folder for the schemas; files in it are replaced.")
@click.pass_obj
def schemas_command(environment: Environment, /, **options: Any) -> int:
    """Copy schemas into a folder, for `--registry DIR`.

    `fetch` copies all of a registry; `learn` those that captures show clients read or register over plain HTTP.
    """
    folder, captures, place = Path(options["output"]), options["captures"], options["registry"]
    if options["action"] == "learn":
        if place is not None:
            raise UsageError("schemas learn reads captures: --registry is for schemas fetch")
        if not captures:
            raise UsageError("schemas learn needs a capture")
        return _learn(environment, captures, folder)
    if captures:
        raise UsageError("schemas fetch reads no captures: schemas learn does")
    if place is None:
        raise UsageError("schemas fetch needs --registry URL")

    from kafkasniff.values.registries import copy_registry, open_registry

    count = copy_registry(open_registry(place, environment.environ), folder)
    environment.say(f"{count:,} versions of schemas in {folder}")
    return Exit.OK


def _learn(environment: Environment, captures: tuple[str, ...], folder: Path) -> int:
    from kafkasniff.capture import open_captures
    from kafkasniff.cli.running.sources import take_captures
    from kafkasniff.text.printable import printable
    from kafkasniff.values.learning import SchemaLearner

    skipped = 0

    def report(line: str) -> None:
        nonlocal skipped
        skipped += 1
        if skipped <= MAX_LINES:
            environment.say(printable(line))

    learner, tracked = SchemaLearner(folder, report), set[int]()
    with open_captures(take_captures(environment, captures), stdin=environment.stdin) as source:
        for batch in source:
            for segment in _segments(batch, tracked):
                learner.take(segment)
    learner.close()
    if skipped > MAX_LINES:
        environment.say(f"{skipped - MAX_LINES:,} more are skipped")
    environment.say(f"{learner.count:,} schemas in {folder}")
    if source.broken:
        return Exit.BROKEN
    return Exit.OK if learner.count else Exit.NOTHING


def _segments(batch: PacketBatch, tracked: set[int]) -> Iterator[HttpSegment]:
    """The segments of connections that begin with a request somewhere; adds these to `tracked`."""
    import numpy as np

    from kafkasniff.packets import FIN, RST, connection_hash
    from kafkasniff.values.learning import MAX_REMEMBERED, STARTS, HttpSegment, may_begin

    hashes = connection_hash(batch)
    data = memoryview(batch.buffer)
    buffer = np.frombuffer(batch.buffer, np.uint8)
    rows = np.flatnonzero(batch.length >= 16)
    if len(rows):
        first = buffer[batch.offset[rows][:, None] + np.arange(4)].view("S4")[:, 0]
        for row in rows[np.isin(first, np.array(STARTS))].tolist():
            offset = int(batch.offset[row])
            if may_begin(bytes(data[offset : offset + int(batch.length[row])])):
                tracked.add(int(hashes[row]))
    if len(tracked) > MAX_REMEMBERED:
        tracked.clear()
    for row in np.flatnonzero(np.isin(hashes, np.array(list(tracked), np.uint64))).tolist():
        offset, length = int(batch.offset[row]), int(batch.length[row])
        yield HttpSegment(
            (int(batch.src_hi[row]), int(batch.src_lo[row]), int(batch.src_port[row])),
            (int(batch.dst_hi[row]), int(batch.dst_lo[row]), int(batch.dst_port[row])),
            int(batch.seq[row]),
            int(batch.ack[row]),
            bytes(data[offset : offset + length]),
            length == int(batch.wire_length[row]),
            bool(batch.flags[row] & (FIN | RST)),
            f"packet {int(batch.number[row]):,}",
        )
