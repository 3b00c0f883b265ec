"""A run: new captures into an export."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kafkasniff.enrich import Catalog
from kafkasniff.enrich.tellings import Tellings
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.exports.captures import CaptureFile, new_captures
from kafkasniff.exports.carried import Carried, ShardState, write_aside
from kafkasniff.exports.finalise import finalise
from kafkasniff.exports.folder import RUN, ExportFolder, Manifest
from kafkasniff.exports.options import ExportOptions
from kafkasniff.exports.shard import CHECKPOINT_SECONDS, Hooks, ShardResult, ShardTask, new_state, run_shard
from kafkasniff.inspector import Inspector
from kafkasniff.model import Summary
from kafkasniff.rows.resolve import Names, Sessions
from kafkasniff.shards import number_from, reshard
from kafkasniff.state import dump, load

if TYPE_CHECKING:
    from kafkasniff.filters import Predicate

__all__ = ["Result", "export"]


class Result(msgspec.Struct):
    """What came of a run."""

    manifest: Manifest
    new: int = 0
    """Captures that were not in the export before; 0: there was nothing to do."""
    rows: dict[str, int] = {}
    """Rows of this run, by table."""
    summary: Summary = msgspec.field(default_factory=Summary)
    broken: bool = False
    """A capture was cut or damaged."""
    resumed: bool = False
    """A run that was killed was gone on with."""


class _Plan(msgspec.Struct):
    """What the run that is being made is over: whether a killed one can be gone on with."""

    options: ExportOptions
    captures: list[CaptureFile]
    shards: int
    run: int


def export(
    captures: Sequence[str],
    directory: Path,
    options: ExportOptions,
    *,
    given: Mapping[str, str] | None = None,
    predicate: Predicate | None = None,
    learn: Callable[[Catalog, Sequence[str]], None] | None = None,
    jobs: int = 1,
    hooks: Hooks | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Result:
    """Export the captures that are not in the folder yet.

    `given`: names by topic id; `predicate`: only the exchanges that it is true of, for which `learn` may fill the
    catalog before; `jobs`: processes, of which each reads all captures and keeps its share of the connections (one
    where a filter has to know all of them, or a capture can be read only once). `hooks` are called here.

    Raises CaptureError, OutputError, and UsageError where the folder holds an export of another kind, of other options,
    or a capture that has grown.
    """
    hooks = Hooks() if hooks is None else hooks
    with ExportFolder(directory) as folder:
        manifest = folder.manifest
        if manifest is not None:
            _check(manifest, options, directory)
        new = new_captures(captures, [] if manifest is None else manifest.captures)
        if not new and manifest is not None:
            return Result(manifest)
        try:
            if predicate is not None or any(capture.size is None for _, capture in new):
                jobs = 1
            return _Making(folder, options, new, hooks, checkpoint_seconds).run(given or {}, predicate, learn, jobs)
        except BaseException:
            if not any(folder.partial.glob("shard-*/checkpoint")):
                folder.discard()
            raise


def _check(manifest: Manifest, options: ExportOptions, directory: Path) -> None:
    if manifest.engine != "local":
        raise UsageError(f"{directory} was exported by another engine; name a new folder")
    for name in options.__struct_fields__:
        if getattr(manifest.options, name) != getattr(options, name):
            raise UsageError(f"{directory} was exported with other options ({name}); name a new folder")


class _Making:
    """The run that is being made."""

    def __init__(
        self,
        folder: ExportFolder,
        options: ExportOptions,
        new: list[tuple[str, CaptureFile]],
        hooks: Hooks,
        checkpoint_seconds: float,
    ) -> None:
        self._folder = folder
        self._options = options
        self._new = new
        self._hooks = hooks
        self._seconds = checkpoint_seconds

    def run(
        self,
        given: Mapping[str, str],
        predicate: Predicate | None,
        learn: Callable[[Catalog, Sequence[str]], None] | None,
        shards: int,
    ) -> Result:
        folder, manifest = self._folder, self._folder.manifest
        carried = self._carried(manifest)
        plan, resumed = self._plan(shards)
        states = self._states(carried, plan.shards, given, predicate)
        if predicate is not None and learn is not None and not resumed:
            (state,) = states
            first = load(state, ShardState)
            learn(first.enricher.catalog, [path for path, _ in self._new])
            states = [dump(first)]
        names = tuple(one.name for one in ([] if manifest is None else manifest.captures))
        tasks = [
            ShardTask(
                folder.partial / f"shard-{number:05}",
                self._options,
                tuple(path for path, _ in self._new),
                names,
                carried.order,
                state,
                number,
                plan.shards,
                predicate,
                self._seconds,
            )
            for number, state in enumerate(states)
        ]
        with folder.output():
            results = [run_shard(tasks[0], self._hooks)] if len(tasks) == 1 else _at_once(tasks, self._hooks)
        return self._finish(carried, results, given, resumed)

    def _carried(self, manifest: Manifest | None) -> Carried:
        if manifest is None or manifest.state is None:
            return Carried([], Sessions(), Tellings())
        path = self._folder.directory / manifest.state
        try:
            return Carried.load(path.read_bytes())
        except OSError as error:
            raise OutputError(f"cannot read {path}: {error.strerror or error}") from error

    def _plan(self, shards: int) -> tuple[_Plan, bool]:
        """The plan of this run, and whether it is that of one that was killed."""
        folder = self._folder
        path = folder.partial / RUN
        plan = _Plan(self._options, [capture for _, capture in self._new], shards, folder.run)
        with folder.output():
            if path.exists():
                try:
                    old = msgspec.json.decode(path.read_bytes(), type=_Plan)
                except msgspec.MsgspecError:
                    old = None
                if old is not None and self._continues(old, plan):
                    plan.shards = old.shards
                    write_aside(path, msgspec.json.encode(plan))
                    return plan, any(folder.partial.glob("shard-*/checkpoint"))
            if folder.partial.exists():
                shutil.rmtree(folder.partial)
            folder.partial.mkdir()
            write_aside(path, msgspec.json.encode(plan))
        return plan, False

    @staticmethod
    def _continues(old: _Plan, plan: _Plan) -> bool:
        """Whether what was done for `old` holds for `plan`: the same, or with more captures behind."""
        keys = [one.key for one in old.captures]
        same = [one.key for one in plan.captures[: len(keys)]] == keys
        return same and None not in keys and (old.options, old.run) == (plan.options, plan.run)

    def _states(
        self, carried: Carried, shards: int, given: Mapping[str, str], predicate: Predicate | None
    ) -> list[bytes]:
        """What each shard begins with."""
        if len(carried.shards) == shards:
            return carried.shards
        found: list[bytes] = []
        for number in range(shards):
            catalog = Catalog(given, tellings=Tellings())
            state = new_state(self._options, catalog, sessions=predicate is not None)
            if carried.shards:
                before = [load(one, ShardState) for one in carried.shards]
                inspectors: list[Inspector] = [one.inspector for one in before]
                state.inspector = reshard(inspectors, number, shards)
                state.enricher.count_into(state.inspector.summary)
                for one in before:
                    state.enricher.missed |= one.enricher.missed
                    state.enricher.catalog.absorb(one.enricher.catalog)
                state.start_ns = before[0].start_ns
            else:
                number_from(state.inspector, number)
            found.append(dump(state))
        return found

    def _finish(self, carried: Carried, results: list[ShardResult], given: Mapping[str, str], resumed: bool) -> Result:
        folder, options = self._folder, self._options
        for result in results:
            carried.tellings.merge(result.tellings)
        names = Names(carried.tellings, given)
        run = folder.run
        for table in options.tables:
            shutil.rmtree(folder.partial / table, ignore_errors=True)
        with folder.output():
            staged = [path for result in results for path in result.staged]
            sessions = carried.sessions
            written = finalise(
                staged, folder.partial, f"part-{run:05}", tables=options.tables, names=names, sessions=sessions
            )
            state = Carried(
                [result.state for result in results], sessions, carried.tellings, max(one.order for one in results)
            ).dump()
            # Rows of what is not over: the next run makes them again, from the sessions as they are now.
            unfinished = finalise(
                [result.unfinished for result in results],
                folder.partial,
                f"part-{run:05}-open",
                tables=options.tables,
                names=names,
                sessions=sessions,
            )
            manifest = folder.commit(options, [capture for _, capture in self._new], written, unfinished, state)
        rows = {
            table: sum(count for found in (written, unfinished) for _, count in found[table])
            for table in options.tables
        }
        broken = any(result.broken for result in results)
        return Result(manifest, len(self._new), rows, _total([result.summary for result in results]), broken, resumed)


def _at_once(tasks: list[ShardTask], hooks: Hooks) -> list[ShardResult]:
    from kafkasniff.exports.workers import run_shards  # noqa: PLC0415 - one process needs none of it

    return run_shards(tasks, hooks)


def _total(summaries: list[Summary]) -> Summary:
    total = Summary()
    for summary in summaries:
        for name in summary.__struct_fields__:
            setattr(total, name, getattr(total, name) + getattr(summary, name))
    return total
