"""What `kafkasniff mcp` answers: each tool runs a command in a process of its own and returns its JSON.

So a tool has the words, bounds and errors of its command, and a capture that ends a process ends only that one.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Final

from kafkasniff.browse.commands import program
from kafkasniff.cli.environment import Exit
from kafkasniff.text.printable import printable, suggestion

MAX_ANSWER: Final = 1 << 20
"""Maximum size of an answer in bytes: more does not fit into what a model reads."""
MAX_NOTES: Final = 4 << 10
"""Bytes kept of what a command says on stderr."""
ANSWER_SECONDS: Final = 600.0
"""Time limit of a command."""
MAX_ROWS: Final = 1000
"""Maximum of `count`."""
_ANSWERED: Final = (Exit.OK, Exit.FINDINGS, Exit.BROKEN)


class AnswerError(Exception):
    """A command failed; the message is what it said."""


class ToolAnswers:
    """Answers about captures and exports, one at a time. A context manager: the end stops what runs.

    `sources`: as named by the user, the only ones that can be read; `reading`: options that decide how captures are
    read, as words of a command line; `payload`: keys and values of records are shown. Secrets never are.
    """

    def __init__(
        self, sources: Sequence[str], exports: Sequence[str], reading: Sequence[str], *, payload: bool
    ) -> None:
        self._sources = tuple(sources)
        self._exports = tuple(exports)
        self._reading = tuple(reading)
        self._hides = () if payload else ("--no-payload",)
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        """An export of the captures, for queries; made by the first."""

    def __enter__(self) -> ToolAnswers:
        return self

    def __exit__(self, *_error: object) -> None:
        process = self._process
        if process is not None:
            process.kill()
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def tools(self) -> tuple[Callable[..., str], ...]:
        """The tools; their docstrings describe them."""
        return (
            self.overview,
            self.findings,
            self.exchanges,
            self.timing,
            self.follow,
            self.sql,
            self.protocol,
        )

    def overview(self, filter: str = "", source: str = "") -> str:
        """What captures hold, as `kafkasniff stats`: APIs, clients, topics, groups, errors, latencies, connections.

        filter: an expression that selects exchanges, such as `api == "Fetch" and latency_ms > 100`.
        source: one of the captures or exports; empty: all.
        """
        return self._answer("stats", *_option("filter", filter), sources=self._of(source))

    def findings(self, filter: str = "", source: str = "") -> str:
        """Problems that detectors find, as `kafkasniff check`: severity, subject, evidence, exchanges, advice.

        filter, source: as for overview.
        """
        return self._answer("check", *_option("filter", filter), sources=self._of(source))

    def exchanges(self, filter: str = "", fields: str = "", count: int = 50, source: str = "") -> str:
        """Requests and responses as JSON lines, as `kafkasniff decode`.

        filter: as for overview; `exchange == 17` is the one with this number in other answers.
        fields: names separated by commas, such as `exchange,time,client_id,api,latency_ms,topic,error`: one row for
        each exchange. Paths lead into bodies: `request.acks`. Empty: whole messages, with bodies.
        count: rows (or messages) to show, at most 1000.
        source: one of the captures; exports are read by sql.
        """
        words = (*_option("filter", filter), *_option("fields", fields), f"--count={_count(count)}", *self._hides)
        return self._answer("decode", *words, sources=self._of(source))

    def timing(self, by: str = "", exchange: int | None = None, filter: str = "", source: str = "") -> str:
        """Where time went (client, network, broker), as `kafkasniff timing`.

        by: break down by api, version, broker, client, address, topic or others, separated by commas.
        exchange: only the exchange with this number, phase by phase.
        filter, source: as for overview.
        """
        numbered = () if exchange is None else (f"--exchange={exchange}",)
        words = (*_option("by", by), *numbered, *_option("filter", filter))
        return self._answer("timing", *words, sources=self._of(source))

    def follow(self, key: str = "", offset: str = "", trace: str = "", count: int = 10, source: str = "") -> str:
        """The way of records from the producer to consumers and commits, as `kafkasniff follow`.

        key, offset, trace: one of them. A record's key (text, or `hex:` and hex digits), its place
        (TOPIC-PARTITION@OFFSET), or the trace id in its headers.
        count: records to show. source: one of the captures or exports; empty: all captures.
        """
        words = (*_option("key", key), *_option("offset", offset), *_option("trace", trace), f"--count={_count(count)}")
        return self._answer("follow", *words, *self._hides, sources=self._of(source))

    def sql(self, query: str = "") -> str:
        """Rows of a read-only query (DuckDB) over tables of all captures and exports, as JSON lines.

        query: such as `SELECT api, count(*) FROM exchanges GROUP BY 1`. Empty: the tables with their columns.
        """
        if not query:
            return self._run(["sql", "--list", "--format=json"])
        with self._turn:
            tables = [*self._exports, *self._tables()]
            return self._run_now(["sql", "--quiet", "--format=json", "--file=-", "--", *tables], query.encode())

    def protocol(self, api: str = "", version: int | None = None) -> str:
        """Kafka's protocol, as `kafkasniff api`: all APIs and their versions; the fields of an API, or of one version.

        api: name or key; empty: all. version: a version of it.
        """
        words = [api] if api else []
        if version is not None:
            words.append(str(version))
        return self._run(["api", "--format=json", "--", *words])

    def _of(self, source: str) -> tuple[str, ...]:
        if not source:
            return self._sources
        if source not in self._sources:
            named = f"the sources are {', '.join(self._sources)}"
            raise AnswerError(f"no source is called {source}{suggestion(source, self._sources, named)}")
        return (source,)

    def _answer(self, command: str, *words: str, sources: Sequence[str]) -> str:
        return self._run([command, "--quiet", "--format=json", *self._reading, *words, "--", *sources])

    def _tables(self) -> list[str]:
        """A folder with the tables of the captures."""
        captures = [source for source in self._sources if source not in self._exports]
        if not captures:
            return []
        if self._folder is None:
            folder = tempfile.TemporaryDirectory(prefix="kafkasniff-")
            place = os.path.join(folder.name, "tables")
            words = ["--quiet", "--records", f"--output={place}", *self._hides, *self._reading]
            try:
                self._run_now(["export", *words, "--", *captures])
            except AnswerError:
                folder.cleanup()
                raise
            self._folder = folder
        return [os.path.join(self._folder.name, "tables")]

    def _run(self, words: Sequence[str]) -> str:
        with self._turn:
            return self._run_now(words)

    def _run_now(self, words: Sequence[str], given: bytes = b"") -> str:
        """The JSON of a command, and what it says on stderr. Raises AnswerError.

        `given`: what it reads from stdin.
        """
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
            stdin.write(given)
            stdin.seek(0)
            with subprocess.Popen(
                program(["kafkasniff", *words]), stdin=stdin, stdout=subprocess.PIPE, stderr=stderr
            ) as process:
                self._process = process
                timer = threading.Timer(ANSWER_SECONDS, process.kill)
                timer.start()
                assert process.stdout is not None
                answer = process.stdout.read(MAX_ANSWER + 1)
                if len(answer) > MAX_ANSWER:
                    process.kill()
                process.wait()
                late = timer.finished.is_set()
                timer.cancel()
                self._process = None
            stderr.seek(0)
            said = "\n".join(
                printable(line).removeprefix("kafkasniff: ")
                for line in stderr.read(MAX_NOTES).decode("utf-8", "replace").splitlines()
            )
        if len(answer) > MAX_ANSWER:
            raise AnswerError(f"the answer is longer than {MAX_ANSWER >> 20} MiB: ask for fewer rows or fields")
        if late:
            raise AnswerError(f"no answer within {ANSWER_SECONDS:.0f} s")
        if process.returncode not in _ANSWERED:
            raise AnswerError(said or f"exit code {process.returncode}")
        return answer.decode() + said


def _option(name: str, value: str) -> tuple[str, ...]:
    return (f"--{name}={value}",) if value else ()


def _count(count: int) -> int:
    if not 1 <= count <= MAX_ROWS:
        raise AnswerError(f"count is between 1 and {MAX_ROWS}")
    return count
