"""Questions about captures: these are exported into a temporary folder, which the question then reads.

So the answer equals that for an export, however late names are learned, and memory does not grow with the captures.
Only the tables that the question reads are written, and bodies are decoded only if it reads them.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.options.option_groups import framing_arguments, key_arguments, make_catalog, reads_twice
from kafkasniff.cli.running.usual_jobs import usual_jobs

if TYPE_CHECKING:
    from kafkasniff.analysis.accumulator import TableReading
    from kafkasniff.cli.running.progress import Progress
    from kafkasniff.enrich import Catalog
    from kafkasniff.filters import Predicate

__all__ = ["exported"]

_BODIES: Final = frozenset({"request_body", "response_body"})


@contextlib.contextmanager
def exported(
    environment: Environment,
    captures: Sequence[str],
    reads: Sequence[tuple[str, TableReading]],
    options: dict[str, Any],
    predicate: Predicate | None,
    *,
    quiet: bool,
) -> Iterator[tuple[str, bool]]:
    """A temporary export of what is read of each table, and whether a capture is broken.

    `options` are those of framing and topic ids; `predicate` selects exchanges. Raises CaptureError, OutputError,
    UsageError.
    """
    from kafkasniff.cli.running.pipeline import learn_names, summary_line
    from kafkasniff.cli.running.progress import Progress, wants_progress
    from kafkasniff.filters import needs_records, needs_topic_names
    from kafkasniff.tables.exports.options import ExportOptions
    from kafkasniff.tables.exports.run import export
    from kafkasniff.tables.exports.shard import Hooks

    arguments = framing_arguments(options)
    # Filters on records look at those in bodies.
    records = predicate is not None and needs_records(predicate)
    wanted = ExportOptions(
        tables=tuple(dict.fromkeys([*(table for table, _ in reads), *(["exchanges"] if records else [])])),
        bodies=records or any(not _BODIES.isdisjoint(reading.columns) for _, reading in reads),
        records=records,
        ports=tuple(sorted(set(arguments.pop("ports")))),
        **arguments,
    )
    key_arguments(options)  # report an unreadable file before anything is written
    names_first = predicate is not None and needs_topic_names(predicate) and reads_twice(None, tuple(captures))
    given = make_catalog(options).given
    shown: list[Progress] = []
    shows = wants_progress(environment, to_terminal=False, quiet=quiet)

    def part() -> None:
        for progress in shown:
            progress.update()

    def learn(catalog: Catalog, paths: Sequence[str]) -> None:
        known = {**framing_arguments(options), **key_arguments(options), "memory": options["memory"]}
        learn_names(environment, catalog, paths, known, progress=shows)

    hooks = Hooks(
        opened=(lambda source: shown.append(Progress(environment, source))) if shows else None,
        part=part,
        stdin=environment.stdin,
    )
    with tempfile.TemporaryDirectory(prefix="kafkasniff-") as folder:
        place = Path(folder) / "tables"
        try:
            result = export(
                captures,
                place,
                wanted,
                given=given,
                jobs=usual_jobs(captures),
                hooks=hooks,
                predicate=predicate,
                learn=learn if names_first else None,
                keylog=options["keylog"],
                memory=options["memory"],
            )
        finally:
            for progress in shown:
                progress.clear()
        if not quiet:
            environment.say(summary_line(result.summary))
        yield str(place), result.broken
