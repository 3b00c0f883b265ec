"""Bodies as trees, below lines of text that the kernel writes: what it has to know for them.

They are identical to those of `sinks.tree`, which writes the trees that the kernel leaves to Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafkasniff.enrich.plan import shows_nothing
from kafkasniff.enrich.sessions import session_fields
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.kafka.messages.rendered import Renderer, program_for
from kafkasniff.kafka.schema.codes import enum_names
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.kafka.schema.definition import Field, Struct, topic_fields
from kafkasniff.model import Direction
from kafkasniff.native.caller import Program
from kafkasniff.native.library import Kernel
from kafkasniff.native.text_lines import ERROR_CODE, TIME, TIMES, Colours, EnumName, TreeStyle
from kafkasniff.sinks.tree import MARGIN, MIN_WIDTH, is_time, struct_lines
from kafkasniff.text.printable import Paint, shown_characters

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
