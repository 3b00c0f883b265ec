"""From a layout to one straight-line Python function.

The function is `decode(data, position, end, context) -> (body, position)`. How it is made fast:

- neighbouring fields of fixed size, and the length or count that follows them, are one call of one struct.Struct;
- the first byte of a varint is read in place; only longer ones call a function;
- nested arrays are nested loops, structs are dict literals; no function per struct, no object per field; few elements
  are counted by tuples that are there already;
- where fields of fixed size follow a string, they are read from its end: `position` moves once for both;
- nothing is reported from here: bytes that are not clean (cut, null where not allowed, not UTF-8 ...) raise `Odd`,
  IndexError, struct.error or UnicodeDecodeError, and the walker reads the message again.

Every slice, count and the end position are held against `end`; `data` may go on behind it.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from struct import calcsize
from typing import Any, Final

from kafkasniff.kafka.context import DecodeContext
from kafkasniff.kafka.layout import FORMATS, PLAIN_NUMBERS, Field, Struct, element_of, element_size, is_flat
from kafkasniff.kafka.wire import ARRAYS, COUNTS

__all__ = ["Decoder", "compile_source", "source_of"]

Decoder = Callable[[bytes, int, int, DecodeContext], tuple[dict[str, Any], int]]

_WIDTH: Final = 118
"""Columns of the source, for who reads it."""
_IMPORTS: Final = {
    **dict.fromkeys(("Struct", "unpack_from"), "struct"),
    **dict.fromkeys(("decode_records", "decode_unaligned"), "kafkasniff.kafka.records"),
    "redact_config": "kafkasniff.kafka.secrets",
    "uuid_text": "kafkasniff.kafka.uuids",
    **dict.fromkeys(("ARRAYS", "COUNTS", "MAX_ELEMENTS", "ZERO_SIZE_SLACK", "Odd"), "kafkasniff.kafka.wire"),
    **dict.fromkeys(("add_error", "keep_tag", "unknown_tags", "varint_rest"), "kafkasniff.kafka.wire"),
}
_RESERVED: Final = frozenset(
    {"data", "position", "end", "context", "left", "show", "skip", "stop", "range", "list", "decode", *_IMPORTS}
)


def source_of(root: Struct, title: str) -> str:
    """The source of a module that defines `decode` for a layout; `title` is its first line, a comment."""
    return _Writer(root).module(title)


def compile_source(source: str, file_name: str) -> Decoder:
    """Execute what `source_of` wrote; `file_name` is what tracebacks show."""
    namespace: dict[str, Any] = {}
    exec(compile(source, file_name, "exec"), namespace)
    decode: Decoder = namespace["decode"]
    return decode


class _Writer:
    """Writes one function.

    Fields of fixed size gather in `run` until something needs their values; `after` holds the statements that come when
    they are read. `behind` tells that what comes next begins at the variable `stop`: `position` is put there with the
    next run, or by `flush`.
    """

    def __init__(self, root: Struct) -> None:
        self.root = root
        self.lines: list[str] = []
        self.depth = 1
        self.names: set[str] = set(_RESERVED)
        self.constants: dict[str, str] = {}
        self.used: set[str] = {"Odd"}
        self.run: list[tuple[str, str]] = []
        self.after: list[str] = []
        self.behind = False

    def module(self, title: str) -> str:
        body = self.struct(self.root, "")
        self.flush()
        self.line("if position > end:")
        self.line("    raise Odd")
        self.line(f"return {body}, position")
        start = ["", "", "def decode(data, position, end, context):"]
        if "MAX_ELEMENTS" in self.used:
            start.append("    left = MAX_ELEMENTS")
        if self.root.secrets:
            start.append("    show = context.options.show_secrets")
        if self.root.records:
            start.append('    skip = context.options.records == "skip"')
        imports: dict[str, list[str]] = {}
        for name in sorted(self.used & _IMPORTS.keys()):
            imports.setdefault(_IMPORTS[name], []).append(name)
        top = [f"# {title}", ""]
        if "struct" in imports:
            top += [f"from struct import {', '.join(imports.pop('struct'))}", ""]
        top += [f"from {module} import {', '.join(names)}" for module, names in sorted(imports.items())]
        if self.constants:
            top += ["", *(f"{name} = {value}" for name, value in self.constants.items())]
        return "\n".join([*top, *start, *self.lines, ""])

    # Writing

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def dict_of(self, entries: list[str]) -> str:
        """A dict literal, one entry a line where it is long."""
        literal = f"{{{', '.join(entries)}}}"
        if len(literal) + 4 * self.depth <= _WIDTH:
            return literal
        indent = "    " * self.depth
        return "{\n" + "".join(f"{indent}    {entry},\n" for entry in entries) + indent + "}"

    def use(self, name: str) -> str:
        self.used.add(name)
        return name

    def name(self, wanted: str) -> str:
        """A local variable that nothing else uses."""
        base = f"{wanted}_" if keyword.iskeyword(wanted) else wanted
        name, count = base, 1
        while name in self.names:
            count += 1
            name = f"{base}_{count}"
        self.names.add(name)
        return name

    def constant(self, name: str, value: str) -> str:
        """A name of the module for an expression."""
        if value.startswith("Struct("):
            self.use("Struct")
        self.constants[name] = value
        return name

    def fixed(self, form: str, wanted: str) -> str:
        """Read a value of fixed size with the run; the variable that will hold it."""
        name = self.name(wanted)
        self.run.append((form, name))
        return name

    def flush(self) -> None:
        """Write the run, so that its variables and `position` are right."""
        # What was read last may end at `stop`, where `position` is not yet.
        place, self.behind = "stop" if self.behind else "position", False
        if self.run:
            form = "".join(form for form, _ in self.run)
            names = [name for _, name in self.run]
            if form == "B":
                self.line(f"{names[0]} = data[{place}]")
            else:
                # Keyed by format: fields of the same sizes in a row share one Struct.
                unpack = self.constant(f"unpack_{form}", f'Struct(">{form}").unpack_from')
                left = ", ".join(names)
                if len(names) == 1 or len(left) + 4 * self.depth > _WIDTH - 30:
                    indent = "    " * (self.depth + 1)
                    left = f"({left},)" if len(names) == 1 else "(" + left.replace(", ", f",\n{indent}") + ")"
                self.line(f"{left} = {unpack}(data, {place})")
            size = calcsize(">" + form)
            self.line(f"position += {size}" if place == "position" else f"position = stop + {size}")
            self.run = []
        elif place == "stop":
            self.line("position = stop")
        for text in self.after:
            self.line(text)
        self.after = []

    def varint(self, wanted: str) -> str:
        """Read an unsigned varint; the run is written."""
        name = self.fixed("B", wanted)
        self.flush()
        self.long_varint(name)
        return name

    def long_varint(self, name: str) -> None:
        self.line(f"if {name} > 127:")
        self.line(f"    {name}, position = {self.use('varint_rest')}(data, position, {name})")

    # Structs

    def struct(self, struct: Struct, path: str) -> str:
        """Read a struct; an expression for its dict."""
        literal = self.dict_of([f'"{field.name}": {self.field(field, path)}' for field in struct.fields])
        configs = any(field.secret == "config" for field in struct.fields)
        if not struct.flexible and not configs:
            return literal
        tags = self.fixed("B", "tags") if struct.flexible else ""
        self.flush()
        value = self.name("value")
        self.line(f"{value} = {literal}")
        if struct.flexible:
            self.line(f"if {tags}:")
            self.depth += 1
            if struct.tagged:
                self.tag_section(struct, path, value, tags)
            else:
                call = f"{self.use('unknown_tags')}(context, data, position, end, {tags}, {value}, {self.shown()})"
                self.line(f"position = {call}")
            self.depth -= 1
        if configs:
            self.line("if not show:")
            self.line(f"    {self.use('redact_config')}({value})")
        return value

    def shown(self) -> str:
        return "show" if self.root.secrets else "True"

    def tag_section(self, struct: Struct, path: str, value: str, tags: str) -> None:
        """Read a tag section whose count starts with the byte `tags`."""
        self.long_varint(tags)
        self.line(f"if {tags} * 2 > end - position:")
        self.line("    raise Odd")
        previous, outer = self.name("previous"), self.name("outer_end")
        self.line(f"{previous} = -1")
        self.line(f"{outer} = end")
        self.line(f"for _ in range({tags}):")
        self.depth += 1
        tag = self.varint("tag")
        size = self.varint("size")
        self.line(f"end = position + {size}")
        self.line(f"if end > {outer} or {tag} <= {previous}:")
        self.line("    raise Odd")
        self.line(f"{previous} = {tag}")
        branch = "if"
        for field in struct.tagged:
            self.line(f"{branch} {tag} == {field.tag}:")
            self.depth += 1
            expression = self.field(field, path)
            self.flush()
            self.line(f'{value}["{field.name}"] = {expression}')
            self.depth -= 1
            branch = "elif"
        self.line("else:")
        kept = f"{self.use('keep_tag')}(context, {value}, {tag}, data[position:end], {self.shown()})"
        self.line(f"    {kept}")
        self.line("    position = end")
        self.line("if position != end:")
        self.line("    raise Odd")
        self.depth -= 1
        self.line(f"end = {outer}")

    # Fields

    def field(self, field: Field, path: str) -> str:
        """Read a field; an expression for its value, to be used before anything else is read into its variables."""
        place = f"{path}.{field.name}" if path else field.name
        if field.array:
            return self.array(field, place)
        if field.struct is not None:
            return self.nullable_struct(field, place) if field.nullable else self.struct(field.struct, place)
        if field.type in FORMATS:
            return self.scalar(field, place)
        return self.variable(field)

    def scalar(self, field: Field, place: str) -> str:
        name = self.fixed(FORMATS[field.type][0], field.name)
        if field.type == "bool":
            self.after += [f"if {name} > 1:", "    raise Odd"]
            return f"{name} == 1"
        if field.type == "uuid":
            return f"{self.use('uuid_text')}({name})"
        if field.type == "error":
            quoted = f'f"{place}"' if "{" in place else f'"{place}"'
            self.after += [f"if {name}:", f"    {self.use('add_error')}(context, {name}, {quoted})"]
        return name

    def nullable_struct(self, field: Field, place: str) -> str:
        struct = field.struct
        assert struct is not None
        mark = self.fixed("b", f"{field.name}_mark")
        name = self.name(field.name)
        self.flush()
        self.line(f"if {mark} == 1:")
        self.depth += 1
        expression = self.struct(struct, place)
        self.flush()
        self.line(f"{name} = {expression}")
        self.depth -= 1
        # In a tag section the mark is an unsigned varint, elsewhere an int8.
        self.line(f"elif {mark} == {-1 if field.tag is None else 0}:")
        self.line(f"    {name} = None")
        self.line("else:")
        self.line("    raise Odd")
        return name

    def length(self, field: Field, wanted: str, form: str) -> tuple[str, int]:
        """Read a length or count: its variable, and the number that it has too many (1 in compact encodings)."""
        if field.compact:
            return self.varint(wanted), 1
        name = self.fixed(form, wanted)
        self.flush()
        return name, 0

    def variable(self, field: Field) -> str:
        """Read a string, bytes or records."""
        length, extra = self.length(field, f"{field.name}_length", "h" if field.type == "string" else "i")
        name = self.name(field.name)
        depth = self.depth
        if field.nullable:
            self.line(f"if {length} == {extra - 1}:")
            self.line(f"    {name} = None")
            self.line("else:")
            self.depth += 1
        self.line(f"stop = position + {length}{' - 1' if extra else ''}")
        # A null that is not allowed makes stop < position, as any negative length does.
        self.line("if not position <= stop <= end:")
        self.line("    raise Odd")
        if field.type == "records":
            decode = self.use("decode_unaligned" if field.unaligned else "decode_records")
            self.line(f"{name} = None if skip else {decode}(data, position, stop, context)")
        else:
            raw = "data[position:stop]"
            raw += ".decode()" if field.type == "string" else ""
            if field.secret == "value":
                withheld = "context.withhold(data[position:stop])"
                stand_in = withheld if field.type == "bytes" else '{"redacted": stop - position}'
                raw += f" if show else {stand_in}"
            self.line(f"{name} = {raw}")
        if field.nullable:
            self.line("position = stop")
        else:
            self.behind = True
        self.depth = depth
        return name

    def array(self, field: Field, place: str) -> str:
        count, extra = self.length(field, f"{field.name}_count", "i")
        name = self.name(field.name)
        depth = self.depth
        if field.nullable:
            self.line(f"if {count} == {extra - 1}:")
            self.line(f"    {name} = None")
            self.line("else:")
            self.depth += 1
        if extra:
            self.line(f"{count} -= 1")
        self.line(f"left -= {count}")
        self.use("MAX_ELEMENTS")
        size = element_size(field)
        room = f"{count} * {size} <= end - position" if size > 1 else f"{count} <= end - position"
        if size == 0:
            room += f" + {self.use('ZERO_SIZE_SLACK')}"
        self.line(f"if not 0 <= {room} or left < 0:")
        self.line("    raise Odd")
        self.elements(field, place, name, count)
        self.depth = depth
        return name

    def elements(self, field: Field, place: str, name: str, count: str) -> None:
        """Read the elements of an array whose count is checked."""
        if field.type in PLAIN_NUMBERS:
            form, size = FORMATS[field.type]
            many = f'{name} = list({self.use("unpack_from")}(f">{{{count}}}{form}", data, position))'
            if form in ARRAYS:
                self.use("ARRAYS")
                few = self.constant(f"arrays_{form}", f'ARRAYS["{form}"]')
                self.line(f"if {count} < {len(ARRAYS[form])}:")
                self.line(f"    {name} = list({few}[{count}](data, position))")
                self.line("else:")
                many = f"    {many}"
            self.line(many)
            self.line(f"position += {f'{count} * {size}' if size > 1 else count}")
            return
        if field.struct is not None and is_flat(field.struct):
            self.flat_structs(field.struct, name, count)
            return
        self.line(f"{name} = []")
        struct = field.struct
        index = self.name("i") if field.type == "error" or (struct is not None and struct.errors) else "_"
        self.use("COUNTS")
        self.line(f"for {index} in COUNTS[{count}] if {count} < {len(COUNTS)} else range({count}):")
        self.depth += 1
        inner = f"{place}[{{{index}}}]"
        if struct is not None:
            expression = self.struct(struct, inner)
        elif field.type in FORMATS:
            expression = self.scalar(field, inner)
        else:
            # An element is never allowed to be null.
            expression = self.variable(element_of(field))
        self.flush()
        self.line(f"{name}.append({expression})")
        self.depth -= 1

    def flat_structs(self, struct: Struct, name: str, count: str) -> None:
        """Read structs that hold nothing but numbers and uuids: one iteration of one struct.Struct."""
        form = "".join(FORMATS[field.type][0] for field in struct.fields)
        iterate = self.constant(f"iterate_{form}", f'Struct(">{form}").iter_unpack')
        names = [self.name(field.name) for field in struct.fields]
        entries = [
            f'"{field.name}": ' + (f"{self.use('uuid_text')}({local})" if field.type == "uuid" else local)
            for field, local in zip(struct.fields, names, strict=True)
        ]
        left = f"({names[0]},)" if len(names) == 1 else ", ".join(names)
        self.line(f"stop = position + {count} * {struct.size}")
        self.line(f"{name} = [{{{', '.join(entries)}}} for {left} in {iterate}(data[position:stop])]")
        self.line("position = stop")
