"""`decode --jobs`: the run of the pipeline with several processes, and the same output."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.pipeline import Parts
from kafkasniff.cli.progress import Progress
from kafkasniff.memory_limits import MAX_NAMES, checked_memory
from kafkasniff.model import Summary
from kafkasniff.packets import PacketBatch
from kafkasniff.parallel.coordinator import Coordinator
from kafkasniff.parallel.crew import Crew
from kafkasniff.parallel.forms import Form, JsonForm, TextForm
from kafkasniff.parallel.interleave import Runs
from kafkasniff.parallel.numbered import NumberedInspector
from kafkasniff.parallel.shard import Shard
from kafkasniff.sinks.jsonl import JsonSink
from kafkasniff.sinks.text import TextSink
from kafkasniff.tls.keylog import KeyLog

if TYPE_CHECKING:
    from kafkasniff.capture import CaptureSource
    from kafkasniff.capture.read_ahead import ReadAhead
    from kafkasniff.enrich import Catalog
    from kafkasniff.filters import Predicate
    from kafkasniff.sinks.lines import ByteStream

__all__ = ["Jobs", "make_shards"]


def make_shards(
    jobs: int, options: Mapping[str, Any], catalog: Catalog, form: Form, predicate: Predicate | None
) -> tuple[list[Shard[Any]], Coordinator]:
    """The shards of a run and their coordinator; `options` are those of the `Inspector`."""
    inspectors = [NumberedInspector(**_options_of(shard, options)) for shard in range(jobs)]
    memory = checked_memory(options.get("memory"))
    for inspector in inspectors:
        # The processes share what a single one may take; what is known must not depend on their number.
        inspector.limit_memory(memory // jobs)
    shards = [
        Shard(
            shard,
            inspector,
            copy.deepcopy(catalog),
            form.render,
            _selector(predicate),
            memory=memory,
        )
        for shard, inspector in enumerate(inspectors)
    ]
    return shards, Coordinator(jobs, copy.deepcopy(catalog), names=predicate is not None, memory=memory)


def _options_of(shard: int, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Only the first shard tells what is to be told of key logs, those in captures as well."""
    return options if shard == 0 else {**options, "keys": options.get("keys", KeyLog()).silent()}


def _selector(predicate: Predicate | None) -> Any:
    if predicate is None:
        return None
    from kafkasniff.filters import Selector

    return Selector(predicate)


class Jobs:
    """A run of several processes: packets from a source to a sink, as `Pipeline` does in one.

    `arguments` are those of the `Inspector`, `stream` is the sink's; `summary` and `names` (address → name, which the
    sink shows) are filled as lines are written. The other parameters are those of `Pipeline`.
    """

    def __init__(
        self,
        environment: Environment,
        jobs: int,
        arguments: Mapping[str, Any],
        sink: JsonSink | TextSink,
        stream: ByteStream,
        *,
        catalog: Catalog,
        summary: Summary,
        names: dict[str, str],
        predicate: Predicate | None = None,
        limit: int | None = None,
        flush: Callable[[], None] | None = None,
    ) -> None:
        self._environment = environment
        self._jobs = jobs
        self._arguments = arguments
        self._sink = sink
        self._form: Form = JsonForm(sink, stream) if isinstance(sink, JsonSink) else TextForm(sink)
        self._catalog = catalog
        self._summary = summary
        self._names = names
        self._predicate = predicate
        self._limit = limit
        self._flush = flush
        self._broken = False
        self.shown = 0
        """Messages that were written, where they are selected or limited."""

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self._limit is not None and self.shown >= self._limit

    def is_broken(self, source: CaptureSource | ReadAhead) -> bool:
        """Whether a capture was cut or damaged, as far as it was read for what is written."""
        return self._broken

    def close(self) -> None:
        """There are no more lines."""
        with self._environment.interrupts.held():
            self._sink.close()

    def run(self, source: CaptureSource | ReadAhead, progress: Progress | None = None) -> None:
        """Take all packets of a source, or as many as the limit needs. A signal waits until lines are written."""
        # What every shard needs, imported once: they begin as copies of this process.
        import kafkasniff.kafka.records  # noqa: F401

        shards, coordinator = make_shards(self._jobs, self._arguments, self._catalog, self._form, self._predicate)
        begun = None
        # A signal waits until a line whose pieces come one by one is whole.
        with Crew(shards, coordinator) as crew, ExitStack() as within:
            try:
                for window, runs in crew.lines(_marked(source, progress)):
                    if window is not begun:
                        begun = window
                        # All names of a window are known before its first line, as in one process.
                        for note in window.notes:
                            if isinstance(note.value, tuple) and len(self._names) < MAX_NAMES:
                                self._names[note.value[0]] = note.value[1]
                    if runs is not None:
                        if not self.full:
                            if not self._form.within:
                                within.enter_context(self._environment.interrupts.held())
                            self._form.write(self._limited(runs))
                            if not self._form.within:
                                within.close()
                        crew.written(runs)
                        continue
                    self._summary.add(window.summary)
                    self._broken = window.mark
                    if self._flush is not None:
                        with self._environment.interrupts.held():
                            self._flush()
                    if self.full:
                        return
            finally:
                if progress is not None:
                    progress.clear()

    def _limited(self, runs: Runs) -> Runs:
        """As much of it as is to be written; counts the messages."""
        if self._limit is None:
            if self._predicate is not None:  # else nobody asks
                self.shown += sum(int(chunk.messages[first:last].sum()) for chunk, first, last in runs)
            return runs
        for number, (chunk, first, last) in enumerate(runs):
            for line in range(first, last):
                self.shown += bool(chunk.messages[line])
                if self.full:
                    return runs.cut(number, line + 1)
        return runs


def _marked(source: CaptureSource | ReadAhead, progress: Progress | None) -> Iterator[tuple[PacketBatch | None, bool]]:
    """The parts that the packets are taken in, each with whether a capture was broken by then."""
    parts = Parts()
    for batch in source:
        for part in parts.of(batch):
            yield part, source.broken
            if progress is not None:
                progress.update()
    yield None, source.broken
