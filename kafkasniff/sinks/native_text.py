"""Lines of text of messages found by the native feed, between those that a `TextSink` writes.

They are identical to those of the sink, which can write any message in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from kafkasniff.enrich import Enricher
from kafkasniff.enrich.plan import adds_names, shows_nothing, teaches
from kafkasniff.enrich.sessions import session_fields
from kafkasniff.kafka.connection.events import Detail
from kafkasniff.kafka.messages.message import unknown_version
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.kafka.messages.rendered import MAX_SIZE, Renderer, careful, program_for, wordings
from kafkasniff.kafka.schema.codes import enum_names, error_codes, error_name
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.kafka.schema.definition import Field, Struct, topic_fields
from kafkasniff.model import Direction, Lines, Problem
from kafkasniff.native.caller import Program, WantedBatch
from kafkasniff.native.library import Kernel
from kafkasniff.native.lines import LineBatch
from kafkasniff.native.names import LineNames
from kafkasniff.native.text_lines import (
    ERROR_CODE,
    TIME,
    TIMES,
    Colours,
    EnumName,
    SummaryPaint,
    SummaryTable,
    TextLines,
    TextTable,
    TreeStyle,
)
from kafkasniff.sinks.native_lines import AddedNames, Ends, SessionText, session_json
from kafkasniff.sinks.summaries.compiled import table_of
from kafkasniff.sinks.text import TextSink
from kafkasniff.sinks.tree import MARGIN, MIN_WIDTH, is_time, struct_lines
from kafkasniff.text.printable import Paint, shown_characters

# -- bodies as trees ---------------------------------------------------------------------------------------------------
#
# They are identical to those of `sinks.tree`, which writes the trees that the kernel leaves to Python.


_BESIDE_TOPIC: Final = "topic_name"
"""A field before which a topic's added name would be shown."""
_RECORDS: Final = "records"


class NativeTrees:
    """Programs of bodies, and the style of a sink. `records`: bodies are shown with their records."""

    def __init__(self, kernel: Kernel, paint: Paint, width: int, *, records: bool) -> None:
        self._kernel = kernel
        self._paint = paint
        self._width = max(width, MIN_WIDTH)
        self._records = records
        self.renderer = Renderer(kernel, "auto", shows_nothing)
        """Decodes bodies."""
        self._options: DecodeOptions | None = None
        self._is_active = False
        colours = Colours(*(code.encode() for code in (paint.name, paint.note, paint.dim, paint.reset)))
        self.style = TreeStyle(colours, self._width, shown_characters)
        self._enums: dict[str, int | None] = {}
        """Roles of fields by the names of their enums."""
        self._programs: dict[tuple[int, int, Direction], Program | None] = {}
        """At most one for each defined version and direction."""

    def use(self, options: DecodeOptions) -> None:
        """Use these options from now on."""
        # Records that are decoded for a filter alone are not shown.
        self._is_active = self.renderer.use(options) and (self._records or options.records != "full")
        if self._options is None or options.show_secrets != self._options.show_secrets:
            self._programs.clear()
        self._options = options

    def program(self, key: int, version: int, direction: Direction) -> Program | None:
        """The program of bodies of a kind; None if Python shows them."""
        if not self._is_active:
            return None
        kind = key, version, direction
        if kind not in self._programs:
            self._programs[kind] = self._program(*kind)
        return self._programs[kind]

    def _program(self, key: int, version: int, direction: Direction) -> Program | None:
        assert self._options is not None
        plan = (request_plan if direction == "request" else response_plan)(key, version)
        if plan.schema is None:
            return None
        roles = list(self._roles(plan.schema.root))
        if None in roles:
            return None
        code = program_for(plan, show_secrets=self._options.show_secrets, roles=[role or 0 for role in roles])
        return None if code is None else Program(self._kernel, code)

    def _roles(self, struct: Struct) -> Iterator[int | None]:
        """The roles of the ops of a struct; None for what Python shows."""
        fields = (*struct.fields, *struct.tagged)
        _, topic_id = topic_fields(fields)
        yield 0
        for field in fields:
            if field.name == _BESIDE_TOPIC and topic_id is not None:
                yield None
            elif field.struct is None:
                yield self._role(field)
            else:
                # An array of this name is omitted with records.
                if field.name == _RECORDS:
                    yield None
                yield from self._roles(field.struct)

    def _role(self, field: Field) -> int | None:
        if field.type == "error":
            return ERROR_CODE
        enum = field.enum
        times = is_time(field.name) and field.type.startswith(("int", "uint"))
        if enum is None:
            return TIME if times else 0
        if enum not in self._enums:
            names = enum_names(enum)
            # Python names sets; those that were not asked for have no names.
            self._enums[enum] = 0 if names is None else self.style.add_enum(_named(names))
        role = self._enums[enum]
        return role + TIMES if times and role else role

    def session(self, partitions: int, unnamed: int | None) -> bytes:
        """The lines of a fetch session in a body; `unnamed` as in `FetchSession`."""
        body = {"_session": session_fields(partitions, unnamed)}
        return "".join(f"{line}\n" for line in struct_lines(body, self._paint, self._width, MARGIN)).encode()


def _named(names: dict[object, str]) -> Iterator[EnumName]:
    for value, name in names.items():
        if isinstance(value, int):
            yield EnumName(int(value), name.encode())
        elif isinstance(value, str) and value != name:
            yield EnumName(value.encode(), name.encode())


# -- lines -------------------------------------------------------------------------------------------------------------


class NativeText:
    """Writes lines to `sink`, whose `writes_plain_lines` has to be true.

    `ends`: of a connection by its index in the feed; `capture`: the name of a capture by its index; `enricher`: adds to
    bodies, and has processed everything before a line when that is taken; `left`: returns how many messages may still
    be written, None for all. Lines of further ones are dropped.
    """

    def __init__(  # noqa: PLR0917 - once for each run
        self,
        kernel: Kernel,
        sink: TextSink,
        ends: Callable[[int], Ends],
        capture: Callable[[int], str | None],
        enricher: Enricher,
        left: Callable[[], int] | None = None,
    ) -> None:
        self._kernel = kernel
        self._trees = (
            NativeTrees(kernel, sink.paint, sink.width, records=sink.verbosity > 1) if sink.verbosity else None
        )
        self._renderer = Renderer(kernel, "auto", shows_nothing) if self._trees is None else self._trees.renderer
        self.session_text: SessionText = session_json if self._trees is None else lru_cache(self._trees.session)
        self.facts = AddedNames(enricher)
        """Names added to bodies."""
        self.only_asked = True
        self._known: dict[tuple[int, int, bool], SummaryTable] = {}
        """Tables by kind; at most one for each defined version and direction."""
        self._sink = sink
        self._left = left
        self._ends = ends
        self._capture_name = capture
        paint = sink.paint
        style = None if self._trees is None else self._trees.style
        errors = SummaryPaint(
            paint.error, paint.warn, paint.dim, paint.reset, {code: error_name(code) for code in error_codes()}
        )
        self._lines = TextLines(
            kernel, self, wordings(), MAX_SIZE, names=LineNames(self.facts), style=style, paint=errors
        )
        self._turn = sink.turn
        self._detail: Detail | None = None
        self._options: DecodeOptions | None = None
        self._kinds: dict[tuple[int, int, bool], bool] = {}
        """Which known versions have lines; as many as there are versions."""

    def bind(self, batch: LineBatch) -> None:
        """The batch that is written from here on."""
        self._lines.bind(batch)

    def use(self, detail: Detail) -> None:
        """Write at the current level of `detail` from now on."""
        if detail.decode is not self._options:
            self._detail, self._options = detail, detail.decode
            if self._trees is None:
                self._renderer.use(detail.decode)
            else:
                self._trees.use(detail.decode)
            self._kinds.clear()
            self._lines.use(self._renderer.caller())

    def takes(self, key: int, version: int, *, is_request: bool) -> bool:
        """Whether messages of a version of an API have lines."""
        kind = key, version, is_request
        known = self._kinds.get(kind)
        if known is None:
            table = self.table(*kind)
            known = self._kinds[kind] = table.address != 0 or table.bare
        return known

    def forget(self, connections: list[int]) -> None:
        """The feed has other connections at these indices."""
        self._lines.forget_connections(connections)

    def take(self, first: int, last: int) -> Iterator[Lines | int]:
        """Write the lines of these messages, one or more at a time; yields the index of one that is left to Python."""
        while first < last:
            left = None if self._left is None else self._left()
            if self._sink.turn != self._turn:
                self._forget()
            stop = min(last, first + left) if left else last
            lines, at, is_pythons = self._lines.write(first, stop)
            if at > first:
                ends = self._lines.line_ends
                yield Lines(b"" if left == 0 else lines, at - first, problems=self._lines.problems, ends=ends)
            first = at
            if is_pythons and at < stop:
                yield at
                first += 1

    def _forget(self) -> None:
        self._turn = self._sink.turn
        self._lines.forget()

    # -- facts for lines besides the messages' own bytes (`TextFacts`) -----------------------------------------------

    def ends(self, index: int) -> tuple[int, bytes, bytes]:
        """The number of a connection, and the columns of both ends."""
        number, client, broker = self._ends(index)
        request, response = self._sink.ends(number, client, broker)
        if self._sink.turn != self._turn:
            self._forget()
        return number, request.encode(), response.encode()

    def label(self, key: int, version: int) -> bytes:
        """The column of an API's version."""
        return self._sink.label(key, version, request_plan(key, version).api).encode()

    def table(self, key: int, version: int, is_request: bool, /) -> TextTable:
        """How messages of an API's version are shown."""
        below = b""
        plan = (request_plan if is_request else response_plan)(key, version)
        shows_secrets = self._detail is not None and self._detail.decode.show_secrets
        if self._detail is not None:
            is_read = self._detail.decode.bodies and not self._detail.decode.headers
            is_unknown = not plan.known_version and not (plan.needed or plan.asks_connection)
            problems = self._detail.lack(key, is_request=is_request)
            if is_unknown and is_read:
                problems += (Problem(*unknown_version(plan)),)
            below = "".join(f"{line}\n" for line in self._sink.problem_lines(problems)).encode()
            if is_unknown and is_read and self._trees is not None:
                # Their bytes are shown.
                return TextTable(0)
            if is_unknown or not self._detail.decode.bodies:
                return TextTable(0, bare=True, below=below)
        direction: Direction = "request" if is_request else "response"
        made = self._known.get((key, version, is_request))
        if made is None:
            found = table_of(key, version, direction) if adds_names(key, version, direction) else None
            if found is None:
                return TextTable(0)
            made = self._known[key, version, is_request] = SummaryTable(self._kernel, found)
        program = (self._renderer.line_program if self._trees is None else self._trees.program)(key, version, direction)
        if program is None and self._trees is not None:
            return TextTable(0)
        return TextTable(
            made.address,
            teaches=teaches(key, version, direction),
            below=below,
            program=0 if program is None else program.address,
            careful=careful(plan, show_secrets=shows_secrets),
        )

    def capture(self, index: int) -> bytes:
        """What the line of a message of a capture begins with."""
        return self._sink.capture(self._capture_name(index)).encode()

    def inflate(self, data: memoryview) -> Callable[[WantedBatch], bytes | None]:
        """Decompresses batches of a message."""
        return self._renderer.inflate(data)
