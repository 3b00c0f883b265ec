"""A run: new captures into an export."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import pyarrow as pa

from kafkasniff.capture.timeline.locations import for_each
from kafkasniff.enrich import Catalog
from kafkasniff.model import Summary
from kafkasniff.runtime.addresses import is_remote
from kafkasniff.runtime.memory_limits import checked_memory
from kafkasniff.tables.checkpoint import dump, load
from kafkasniff.tables.checkpoint.carried import Carried, ShardState
from kafkasniff.tables.exports.bad_captures import OnBadCapture, Sorted, sort_out
from kafkasniff.tables.exports.beginning import check_no_stream, check_options, first_states, read_carried, total
from kafkasniff.tables.exports.captures import Exported, Look, ManifestCapture, look_at, new_captures
from kafkasniff.tables.exports.distrust import DamagedRunError
from kafkasniff.tables.exports.finish import finish
from kafkasniff.tables.exports.folder import RUN
from kafkasniff.tables.exports.manifest import MAX_MANIFEST, MAX_RUNS, Manifest
from kafkasniff.tables.exports.opening import open_export
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.shard import (
    CHECKPOINT,
    CHECKPOINT_SECONDS,
    MAX_SHARDS,
    Hooks,
    ShardResult,
    ShardTask,
    is_shard,
    run_shard,
    shard_name,
)
from kafkasniff.tables.exports.target import ExportTarget

if TYPE_CHECKING:
    from kafkasniff.filters import Predicate
    from kafkasniff.tables.rows.decoded_values import DecodedValues

__all__ = ["Result", "export", "has_checkpoint", "nothing_new"]

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
    """Notices: why an interrupted run could not be used, and problems found when rows were put into partitions."""


class _RunInputs(msgspec.Struct):
    """The inputs of the current run, which decide whether a killed run can be resumed."""

    options: ExportOptions
    captures: list[ManifestCapture]
    shards: Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARDS)]
    run: Annotated[int, msgspec.Meta(ge=1, le=MAX_RUNS)]
    discard_state: bool = False


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
) -> Result:
    """Export the captures that are not in the export yet.

    `directory`: a folder, or an address in an object store (`opening.open_export`). `given`: names by topic id.
    `predicate`: selects exchanges; `learn` may fill the catalog for it before. `jobs`: processes; each reads all
    captures and keeps its share of the connections (one process if a filter has to know all connections, or a capture
    can be read only once). `keylog`: a file with secrets of TLS, which are not stored in the folder. `memory`: budget
    in bytes, which the processes share. `hooks` are called here. `discard_state`: do not resume from the last run, nor
    a killed run that did: rows of connections that were open then stay as they are. `on_bad`: what to do about captures
    that are empty or no captures (`bad_captures`). `values`: decodes keys and values of records.

    Raises CaptureError, OutputError, and UsageError if it holds an export of another kind, with other options, or with
    a capture that has grown.
    """
    hooks = Hooks() if hooks is None else hooks
    with open_export(directory) as target:
        manifest = target.manifest
        if manifest is not None:
            check_options(manifest, options, target.name)
            check_no_stream(manifest, target.name)
        remote = any(is_remote(path) for path in captures)
        exported = Exported() if manifest is None else Exported(manifest.captures, manifest.quarantined)
        looks = for_each(lambda path: look_at(path, exported), captures, remote=remote)
        found = sort_out(looks, on_bad, manifest)
        new = new_captures(found.good, [] if manifest is None else manifest.captures)
        if not new and manifest is not None:
            return nothing_new(manifest, found)
        try:
            if predicate is not None or any(look.capture.size is None for look in new):
                jobs = 1
            making = _Making(
                target,
                options,
                new,
                hooks,
                checkpoint_seconds,
                keylog=keylog,
                discard_state=discard_state,
                memory=memory,
                bad=found,
                quarantines=on_bad == "quarantine",
                values=values,
            )
            return making.run(given or {}, predicate, learn, jobs)
        except BaseException:
            if not has_checkpoint(target):
                target.discard()
            raise


def nothing_new(manifest: Manifest, found: Sorted) -> Result:
    """The result of a run whose captures are all in the export, or bad."""
    return Result(manifest, broken=bool(found.bad), skipped=tuple(problem.detail for problem in found.problems))


def has_checkpoint(target: ExportTarget) -> bool:
    """Whether there is a state from which a run may be resumed."""
    return any((target.partial / name / CHECKPOINT).exists() for name in target.partial.names() if is_shard(name))


class _Making:
    """The current run."""

    def __init__(
        self,
        target: ExportTarget,
        options: ExportOptions,
        new: list[Look],
        hooks: Hooks,
        checkpoint_seconds: float,
        *,
        keylog: str | None,
        discard_state: bool,
        memory: int | None,
        bad: Sorted,
        quarantines: bool,
        values: DecodedValues | None,
    ) -> None:
        self._values = values
        self._target = target
        self._options = options
        self._new = new
        self._hooks = hooks
        self._seconds = checkpoint_seconds
        self._keylog = keylog
        self._resumed = False
        self._discard_state = discard_state
        self._memory = checked_memory(memory)
        self._bad = bad
        self._quarantined = bad.bad if quarantines else []

    def run(
        self,
        given: Mapping[str, str],
        predicate: Predicate | None,
        learn: Callable[[Catalog, Sequence[str]], None] | None,
        shards: int,
    ) -> Result:
        try:
            return self._run(given, predicate, learn, shards)
        except (DamagedRunError, *_NONSENSE) as error:
            if not self._resumed:
                raise
            reason = str(error) if isinstance(error, DamagedRunError) else f"its rows are invalid ({error!r})"
        # Output of an earlier process is used only as far as it can be validated.
        with self._target.output():
            self._target.partial.remove_tree()
        result = self._run(given, predicate, learn, shards)
        notice = f"the interrupted run cannot be resumed and was made again: {reason}"
        result.notices = (notice, *result.notices)
        return result

    def _run(
        self,
        given: Mapping[str, str],
        predicate: Predicate | None,
        learn: Callable[[Catalog, Sequence[str]], None] | None,
        shards: int,
    ) -> Result:
        target, manifest = self._target, self._target.manifest
        carried = read_carried(target, discard=self._discard_state)
        plan, resumed = self._plan(shards)
        self._resumed = resumed
        states = first_states(carried, plan.shards, self._options, given, sessions=predicate is not None)
        if predicate is not None and learn is not None and not resumed:
            (state,) = states
            first = load(state, ShardState)
            learn(first.enricher.catalog, [look.path for look in self._new])
            states = [dump(first)]
        names = tuple(one.name for one in ([] if manifest is None else manifest.captures))
        tasks = [
            ShardTask(
                target.partial / shard_name(number),
                self._options,
                tuple(look.path for look in self._new),
                names,
                carried.order,
                state,
                number,
                plan.shards,
                predicate,
                self._seconds,
                self._keylog,
                self._memory,
                tuple(self._bad.problems) if number == 0 else (),
            )
            for number, state in enumerate(states)
        ]
        with target.output():
            results = [run_shard(tasks[0], self._hooks)] if len(tasks) == 1 else _at_once(tasks, self._hooks)
        return self._finish(carried, results, given, resumed)

    def _plan(self, shards: int) -> tuple[_RunInputs, bool]:
        """The plan of this run, and whether a killed run had the same plan."""
        target = self._target
        path = target.partial / RUN
        new = [look.capture for look in self._new]
        plan = _RunInputs(self._options.public, new, shards, target.run, self._discard_state)
        with target.output():
            if path.exists():
                try:
                    old = msgspec.json.decode(path.content(MAX_MANIFEST), type=_RunInputs)
                except (msgspec.MsgspecError, RecursionError):
                    old = None
                if old is not None and self._continues(old, plan):
                    plan.shards = old.shards
                    path.put(msgspec.json.encode(plan))
                    return plan, has_checkpoint(target)
            target.partial.remove_tree()
            path.put(msgspec.json.encode(plan))
        return plan, False

    @staticmethod
    def _continues(old: _RunInputs, plan: _RunInputs) -> bool:
        """Whether results for `old` are valid for `plan`: the same captures, perhaps followed by more."""
        keys = [one.key for one in old.captures]
        same = [one.key for one in plan.captures[: len(keys)]] == keys
        alike = (old.options, old.run, old.discard_state) == (plan.options, plan.run, plan.discard_state)
        return same and None not in keys and alike

    def _finish(self, carried: Carried, results: list[ShardResult], given: Mapping[str, str], resumed: bool) -> Result:
        target, options = self._target, self._options
        with target.output():
            for table in options.tables:
                (target.partial / table).remove_tree()
            made = finish(
                target.partial,
                target.file_name,
                options,
                carried,
                results,
                given=given,
                memory=self._memory,
                values=self._values,
            )
            new = [look.capture for look in self._new]
            manifest = target.commit(
                options,
                new,
                made.written,
                made.unfinished,
                made.state,
                continues=not self._discard_state,
                quarantined=self._quarantined,
            )
        rows = {
            table: sum(file.rows for found in (made.written, made.unfinished) for file in found[table])
            for table in options.tables
        }
        skipped = tuple(problem.detail for problem in self._bad.problems)
        broken = any(result.broken for result in results) or bool(skipped)
        return Result(
            manifest,
            len(self._new),
            rows,
            total([result.summary for result in results]),
            broken,
            resumed,
            skipped,
            tuple(problem.detail for problem in made.problems),
        )


def _at_once(tasks: list[ShardTask], hooks: Hooks) -> list[ShardResult]:
    from kafkasniff.tables.exports.workers import run_shards  # noqa: PLC0415 - one process needs none of it

    return run_shards(tasks, hooks)
