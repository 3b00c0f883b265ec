"""A run: new captures into an export, by either engine; and the one that makes it in this process and its workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import pyarrow as pa

from kafkasniff.capture.timeline.locations import for_each
from kafkasniff.enrich import Catalog
from kafkasniff.model import Problem, Summary
from kafkasniff.runtime.addresses import is_remote
from kafkasniff.runtime.export_manifest import MAX_MANIFEST
from kafkasniff.runtime.memory_limits import checked_memory
from kafkasniff.tables.checkpoint import Carried, ShardState, dump, load
from kafkasniff.tables.exports.captures import (
    Exported,
    Look,
    ManifestCapture,
    OnBadCapture,
    look_at,
    new_captures,
    sort_out,
)
from kafkasniff.tables.exports.finalise import Finished, finish
from kafkasniff.tables.exports.manifest import MAX_RUNS, Engine, Manifest
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.shard import (
    CHECKPOINT,
    CHECKPOINT_SECONDS,
    MAX_SHARDS,
    Hooks,
    ShardTask,
    is_shard,
    run_shard,
    run_shards,
    shard_name,
)
from kafkasniff.tables.exports.staged import DamagedRunError
from kafkasniff.tables.exports.staging import first_states
from kafkasniff.tables.exports.target import RUN, ExportTarget, open_export
from kafkasniff.tables.rows.staged import STAGED, staged_columns

if TYPE_CHECKING:
    from kafkasniff.filters import Predicate
    from kafkasniff.tables.rows.decoded_values import DecodedValues

_NONSENSE: Final = (ValueError, TypeError, LookupError, AttributeError, AssertionError, pa.ArrowException)
"""Exceptions that valid rows of the right types may raise if this program has not made them."""


class Result(msgspec.Struct):
    """Result of a run."""

    manifest: Manifest
    new: int = 0
    """Captures that were not in the export before; 0: there was nothing to do."""
    rows: dict[str, int] = {}
    """Rows of this run, by table."""
    summary: Summary = msgspec.field(default_factory=Summary)
    broken: bool = False
    """A capture was truncated or damaged."""
    resumed: bool = False
    """A run that was killed was resumed."""
    skipped: tuple[str, ...] = ()
    """Why captures were skipped."""
    notices: tuple[str, ...] = ()
    """Notices: why an interrupted run could not be used, problems of partitions, and of schemas with Spark."""


class ExportRun:
    """A run into an export, whichever engine makes its files: what it adds, what it continues, and its commit.

    `on_bad`: what to do about captures that are empty or no captures; `discard_state`: do not resume from the last run,
    nor a killed run that did: rows of connections that were open then stay as they are; `streams`: it is a micro-batch
    of a stream.
    """

    def __init__(
        self,
        target: ExportTarget,
        options: ExportOptions,
        *,
        on_bad: OnBadCapture = "fail",
        discard_state: bool = False,
        streams: bool = False,
    ) -> None:
        """Raises UsageError as `ExportTarget.check_continues` does."""
        target.check_continues(options, streams=streams)
        self.target = target
        self.options = options
        self.discard_state = discard_state
        manifest = target.manifest
        self.before: list[ManifestCapture] = [] if manifest is None else manifest.captures
        """The captures of earlier runs."""
        self.exported = Exported(self.before, () if manifest is None else manifest.quarantined)
        self.captures: list[ManifestCapture] = []
        """Those that are added."""
        self.paths: list[str] = []
        """Where they are."""
        self.problems: list[Problem] = []
        """Problems of bad captures."""
        self._on_bad = on_bad
        self._quarantined: list[ManifestCapture] = []

    def choose(self, looks: Iterable[Look]) -> Result | None:
        """Take the new ones among captures; returns the result of the run if there is nothing to do.

        Raises CaptureError as `sort_out`, UsageError as `new_captures`.
        """
        manifest = self.target.manifest
        found = sort_out(looks, self._on_bad, None if manifest is None else manifest.quarantined)
        new = new_captures(found.good, self.before)
        self.captures, self.paths = [look.capture for look in new], [look.path for look in new]
        self.problems = found.problems
        self._quarantined = found.bad if self._on_bad == "quarantine" else []
        if new or manifest is None:
            return None
        return Result(manifest, broken=bool(found.bad), skipped=self._skipped)

    @property
    def names(self) -> list[str]:
        """Names of the captures of earlier runs, whose indices come first."""
        return [manifest_capture.name for manifest_capture in self.before]

    @property
    def _skipped(self) -> tuple[str, ...]:
        return tuple(problem.detail for problem in self.problems)

    def carried(self) -> Carried:
        """The state that the last run left. Raises as `ExportTarget.carried`."""
        return self.target.carried(discard=self.discard_state)

    def commit(
        self, made: Finished, summary: Summary, *, broken: bool, engine: Engine = "local", batch: int | None = None
    ) -> Result:
        """Add the files of the run to the export; `batch`: the number of a stream's batch. Raises OutputError."""
        manifest = self.target.commit(
            self.options,
            self.captures,
            made.written,
            made.unfinished,
            made.state,
            engine=engine,
            continues=not self.discard_state,
            batch=batch,
            quarantined=self._quarantined,
        )
        rows = {
            table: sum(file.rows for found in (made.written, made.unfinished) for file in found[table])
            for table in self.options.tables
        }
        notices = (*(problem.detail for problem in made.problems), *made.schema_problems)
        broken = broken or bool(self.problems)
        return Result(manifest, len(self.captures), rows, summary, broken, skipped=self._skipped, notices=notices)


def export(
    captures: Sequence[str],
    directory: str | os.PathLike[str],
    options: ExportOptions,
    *,
    given: Mapping[str, str] | None = None,
    predicate: Predicate | None = None,
    learn: Callable[[Catalog, Sequence[str]], None] | None = None,
    jobs: int = 1,
    hooks: Hooks | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    keylog: str | None = None,
    discard_state: bool = False,
    memory: int | None = None,
    on_bad: OnBadCapture = "fail",
    values: DecodedValues | None = None,
    columns: Collection[str] | None = None,
) -> Result:
    """Export the captures that are not in the export yet.

    `directory`: a folder, or an address in an object store (`target.open_export`). `given`: names by topic id.
    `predicate`: selects exchanges; `learn` may fill the catalog for it before. `jobs`: processes; each reads all
    captures and keeps its share of the connections (one process if a filter has to know all connections, or a capture
    can be read only once). `keylog`: a file with secrets of TLS, which are not stored in the folder. `memory`: budget
    in bytes, which the processes share. `hooks` are called here. `discard_state` and `on_bad`: as for `ExportRun`.
    `values`: decodes keys and values of records. `columns`: those of `exchanges` that will be read, for an export that
    nobody else reads: others are null.

    Raises CaptureError, OutputError, and UsageError if it holds an export of another kind, with other options, or with
    a capture that has grown.
    """
    with open_export(directory) as target:
        run = ExportRun(target, options, on_bad=on_bad, discard_state=discard_state)
        remote = any(is_remote(path) for path in captures)
        done = run.choose(for_each(lambda path: look_at(path, run.exported), captures, remote=remote))
        if done is not None:
            return done
        try:
            if predicate is not None or any(capture.size is None for capture in run.captures):
                jobs = 1
            hooks, budget = Hooks() if hooks is None else hooks, checked_memory(memory)
            wanted = frozenset(
                STAGED["exchanges"].names
                if columns is None
                else staged_columns(columns, problems="problems" in options.tables)
            )
            local = _LocalRun(
                run, hooks, checkpoint_seconds, given or {}, predicate, learn, keylog, budget, values, wanted
            )
            return local.result(jobs)
        except BaseException:
            if not has_checkpoint(target):
                target.discard()
            raise


def has_checkpoint(target: ExportTarget) -> bool:
    """Whether there is a state from which a run may be resumed."""
    return any((target.partial / name / CHECKPOINT).exists() for name in target.partial.names() if is_shard(name))


class _RunInputs(msgspec.Struct):
    """The inputs of the current run, which decide whether a killed run can be resumed."""

    options: ExportOptions
    captures: list[ManifestCapture]
    shards: Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARDS)]
    run: Annotated[int, msgspec.Meta(ge=1, le=MAX_RUNS)]
    discard_state: bool = False


class _LocalRun(msgspec.Struct):
    """The current run, made here; parameters as for `export`."""

    run: ExportRun
    hooks: Hooks
    checkpoint_seconds: float
    given: Mapping[str, str]
    predicate: Predicate | None
    learn: Callable[[Catalog, Sequence[str]], None] | None
    keylog: str | None
    memory: int
    values: DecodedValues | None
    columns: frozenset[str]
    resumed: bool = False

    def result(self, shards: int) -> Result:
        """Make it in `shards` processes. Output of an earlier process is used only as far as it can be validated."""
        try:
            return self._made(shards)
        except (DamagedRunError, *_NONSENSE) as error:
            if not self.resumed:
                raise
            reason = str(error) if isinstance(error, DamagedRunError) else f"its rows are invalid ({error!r})"
        with self.run.target.output():
            self.run.target.partial.remove_tree()
        result = self._made(shards)
        notice = f"the interrupted run cannot be resumed and was made again: {reason}"
        result.notices = (notice, *result.notices)
        return result

    def _made(self, shards: int) -> Result:
        run, target, predicate = self.run, self.run.target, self.predicate
        carried = run.carried()
        shards, self.resumed = self._plan(shards)
        states = first_states(carried, shards, run.options, self.given, sessions=predicate is not None)
        if predicate is not None and self.learn is not None and not self.resumed:
            (state,) = states
            first = load(state, ShardState)
            self.learn(first.enricher.catalog, run.paths)
            states = [dump(first)]
        tasks = [
            ShardTask(
                target.partial / shard_name(number),
                run.options,
                tuple(run.paths),
                tuple(run.names),
                carried.order,
                state,
                number,
                shards,
                predicate,
                self.checkpoint_seconds,
                self.keylog,
                self.memory,
                tuple(run.problems) if number == 0 else (),
                self.columns,
            )
            for number, state in enumerate(states)
        ]
        with target.output():
            results = [run_shard(tasks[0], self.hooks)] if len(tasks) == 1 else run_shards(tasks, self.hooks)
            for table in run.options.tables:
                (target.partial / table).remove_tree()
            made = finish(
                target.partial,
                target.file_name,
                run.options,
                carried,
                results,
                given=self.given,
                memory=self.memory,
                values=self.values,
            )
        summary = Summary.total(result.summary for result in results)
        result = run.commit(made, summary, broken=any(result.broken for result in results))
        result.resumed = self.resumed
        return result

    def _plan(self, shards: int) -> tuple[int, bool]:
        """The number of processes of this run, and whether a killed run can be resumed, whose number it is."""
        run, target = self.run, self.run.target
        path = target.partial / RUN
        plan = _RunInputs(run.options.public, run.captures, shards, target.run, run.discard_state)
        with target.output():
            if path.exists():
                try:
                    old = msgspec.json.decode(path.content(MAX_MANIFEST), type=_RunInputs)
                except (msgspec.MsgspecError, RecursionError):
                    old = None
                if old is not None and self._continues(old, plan):
                    plan.shards = old.shards
                    path.put(msgspec.json.encode(plan))
                    return plan.shards, has_checkpoint(target)
            target.partial.remove_tree()
            path.put(msgspec.json.encode(plan))
        return shards, False

    @staticmethod
    def _continues(old: _RunInputs, plan: _RunInputs) -> bool:
        """Whether results for `old` are valid for `plan`: the same captures, perhaps followed by more."""
        keys = [capture.key for capture in old.captures]
        same = [capture.key for capture in plan.captures[: len(keys)]] == keys
        alike = (old.options, old.run, old.discard_state) == (plan.options, plan.run, plan.discard_state)
        return same and None not in keys and alike
