"""The footer of a Parquet file: read without Arrow, and rewritten for it.

Arrow aborts the process if some values of a footer contradict each other (such as a histogram of levels with a wrong
number of elements). So it never sees the original footer of a file. `Footer.rewritten` builds one with only the
required fields, each checked, for the selected columns and row groups. Statistics, indexes, Bloom filters, encryption
and metadata are dropped.

Footers and page headers are structures of Thrift's compact protocol. The cost of reading is proportional to the number
of bytes, whatever they contain. Fields that are not requested are skipped; a field of an unexpected type is refused.

Sources: thrift/doc/specs/thrift-compact-protocol.md; parquet-format/src/main/thrift/parquet.thrift, which defines the
numbers of fields and enumerations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

MAX_NESTING: Final = 32
"""Maximum nesting of structures; Parquet's are seven deep."""
MAX_STRUCTS: Final = 262_144
"""Maximum number of structures. Each costs the reader some hundred bytes but can be one byte long. A file of 256 row
groups with 60 columns has some 100,000.
"""

_BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(3, 13)
_BITS: Final = {_I16: 16, _I32: 32, _I64: 64}

Shape: TypeAlias = "dict[int, type[int] | type[bytes] | Shape | tuple[Shape]]"
"""The requested fields of a structure by id: numbers (i16, i32 or i64), bytes, structures with a shape of their own,
and lists of structures (their shape in a tuple), which are read as `Element`s.
"""
_FITTING: Final[dict[object, frozenset[int]]] = {
    int: frozenset(_BITS),
    bytes: frozenset({_BINARY}),
    dict: frozenset({_STRUCT}),
    tuple: frozenset({_LIST}),
}


class Element(NamedTuple):
    """A structure of a list."""

    start: int
    """Its offset."""
    end: int
    fields: dict[int, Any]


class CompactReader:
    """Reads one structure from bytes. Raises ValueError if they are invalid, truncated, or exceed the bounds."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._structs = 0
        self.at = at
        """Offset of the next byte to be read."""

    def read(self, shape: Shape) -> dict[int, Any]:
        """The requested fields that exist."""
        try:
            return self._struct(shape, 0)
        except IndexError:
            raise ValueError("it is truncated") from None

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")
        if value >> 64:
            raise ValueError("a number is too long")
        return value

    def _number(self, bits: int) -> int:
        """Arrow would use the lowest bits of a number that is too large."""
        value = self._data[self.at]
        if value < 0x80:
            self.at += 1
        else:
            value = self._varint()
            if value >> bits:
                raise ValueError(f"a number has more than {bits} bits")
        return (value >> 1) ^ -(value & 1)

    def _size(self) -> int:
        """A number of bytes, or of elements, each of which takes at least one byte."""
        size = self._varint()
        if size > len(self._data) - self.at:
            raise ValueError("it is truncated")
        return size

    def _struct(self, shape: Shape, depth: int) -> dict[int, Any]:
        self._structs += 1
        if depth > MAX_NESTING or self._structs > MAX_STRUCTS:
            raise ValueError(
                f"it has more than {MAX_STRUCTS} structures, or is nested more than {MAX_NESTING} levels deep"
            )
        found: dict[int, Any] = {}
        field = 0
        while head := self._data[self.at]:
            self.at += 1
            field = field + (head >> 4) if head >> 4 else self._number(16)
            if not 0 <= field < 1 << 15:
                raise ValueError(f"there is no field {field}")
            kind = head & 15
            wanted = shape.get(field)
            if wanted is not None:
                if kind not in _FITTING[wanted if isinstance(wanted, type) else type(wanted)]:
                    raise ValueError(f"its field {field} has type {kind}")
                found[field] = self._value(kind, wanted, depth)
            elif kind not in {1, 2}:  # for a boolean, the type of a field is its value
                self._value(kind, None, depth)
        self.at += 1
        return found

    def _value(self, kind: int, wanted: type | Shape | tuple[Shape] | None, depth: int) -> Any:
        """Read a value, or skip it: None is not `wanted`."""
        if kind in _BITS:
            return self._number(_BITS[kind])
        if kind == _BINARY:
            size = self._size()
            self.at += size
            return None if wanted is None else self._data[self.at - size : self.at]
        if kind == _STRUCT:
            return self._struct(wanted if isinstance(wanted, dict) else {}, depth + 1)
        if kind in {_LIST, _SET}:
            return self._list(wanted, depth + 1)
        if kind == _MAP:
            size = self._size()
            kinds = self._data[self.at] if size else 0
            self.at += size > 0
            self._skip(size, (kinds >> 4, kinds & 15), depth + 1)
        elif 0 < kind <= _DOUBLE:
            self.at += 8 if kind == _DOUBLE else 1  # as an element, a boolean takes a byte
        else:
            raise ValueError(f"there is no type {kind}")
        return None

    def _list(self, wanted: type | Shape | tuple[Shape] | None, depth: int) -> list[Element] | None:
        head = self._data[self.at]
        kind = head & 15
        if head < 0xF0:
            size = head >> 4
            self.at += 1
        else:
            self.at += 1
            size = self._size()
        if not isinstance(wanted, tuple):
            self._skip(size, (kind,), depth)
            return None
        if size and kind != _STRUCT:
            raise ValueError(f"a list has elements of type {kind}")
        elements = []
        for _ in range(size):
            start = self.at
            fields = self._struct(wanted[0], depth + 1)
            elements.append(Element(start, self.at, fields))
        return elements

    def _skip(self, size: int, kinds: tuple[int, ...], depth: int) -> None:
        if depth > MAX_NESTING:
            raise ValueError(f"its lists are nested more than {MAX_NESTING} levels deep")
        for _ in range(size):
            for kind in kinds:
                self._value(kind, None, depth)


# -- writing: a value is the type of a field and its bytes


def structure(fields: Mapping[int, tuple[int, bytes]]) -> tuple[int, bytes]:
    """A structure of fields by their ids, in ascending order."""
    found = bytearray()
    last = 0
    for field, (kind, value) in fields.items():
        if not 0 < field - last < 16:
            raise ValueError(f"field {field} cannot follow field {last}")
        found.append((field - last) << 4 | kind)
        found += value
        last = field
    found.append(0)
    return _STRUCT, bytes(found)


def number(value: int, bits: int = 64) -> tuple[int, bytes]:
    """An i32 or i64."""
    return (_I32 if bits == 32 else _I64), _varint(value << 1 ^ value >> 63)


def text(value: bytes) -> tuple[int, bytes]:
    """Bytes, with their length."""
    return _BINARY, _varint(len(value)) + value


def list_of(elements: Iterable[tuple[int, bytes]]) -> tuple[int, bytes]:
    """A list of values of one type."""
    values = list(elements)
    kind = values[0][0] if values else _STRUCT
    head = bytes([len(values) << 4 | kind]) if len(values) < 15 else bytes([0xF0 | kind]) + _varint(len(values))
    return _LIST, head + b"".join(value for _, value in values)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


MAX_COLUMNS: Final = 1024
"""Maximum number of leaves of a schema; tables have up to 60."""
MAX_ELEMENTS: Final = 4096
"""Maximum number of elements of a schema, and of row groups."""
MAX_NAME: Final = 1024
"""Maximum size in bytes of the name of an element; tables have up to 30."""
MAX_SCHEMA_DEPTH: Final = 16
"""Maximum nesting depth of elements; tables have up to five."""

BYTE_ARRAY: Final = 6
_TYPES: Final = 8
_REPEATED: Final = 2
_CODECS: Final = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
_READABLE_CODECS: Final = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
_ENCODINGS: Final = (0, 3, 8)
"""PLAIN, RLE, RLE_DICTIONARY: pages declare which of them they use, and `table_file` checks there."""
_LARGEST: Final = 1 << 62

_ELEMENT: Final[Shape] = {1: int, 3: int, 4: bytes, 5: int}
_GROUP: Final[Shape] = {1: ({},), 3: int}
_FILE: Final[Shape] = {2: (_ELEMENT,), 4: (_GROUP,)}
_STATISTICS: Final[Shape] = {5: bytes, 6: bytes}
_CHUNK: Final[Shape] = {1: bytes, 3: dict.fromkeys((1, 4, 5, 6, 7, 9, 11), int)}
_CHUNK_STATISTICS: Final[Shape] = {3: {12: _STATISTICS}}


class Leaf(NamedTuple):
    """A column that has values."""

    place: int
    """Its index among all leaves."""
    names: tuple[str, ...]
    """From the table's column to the leaf."""
    physical: int
    repeated: bool
    """It is in a list: rows do not have exactly one value."""

    @property
    def path(self) -> str:
        """The name that Arrow uses."""
        return ".".join(self.names)


class Chunk(NamedTuple):
    """A leaf's data in a row group."""

    codec: int
    values: int
    """Nulls and empty lists included."""
    plain_size: int
    stored_size: int
    data_at: int
    dictionary_at: int | None

    @property
    def start(self) -> int:
        """Offset of its first page."""
        dictionary = self.dictionary_at
        return self.data_at if dictionary is None or not 0 < dictionary < self.data_at else dictionary


class _Group(NamedTuple):
    rows: int
    chunks: Sequence[int]
    """Offsets of these in the footer."""


class _Column(NamedTuple):
    """A column of the table."""

    elements: tuple[bytes, ...]
    """The column and everything in it, as in the footer."""
    leaves: tuple[Leaf, ...]


class _SchemaWalk:
    """Walks through the elements of a schema, starting after its root."""

    def __init__(self, elements: Sequence[Element]) -> None:
        self._elements = elements
        self.at = 1
        self.leaves: list[Leaf] = []

    def step(self, above: tuple[str, ...], *, repeated: bool) -> None:
        """Skip an element and everything in it. Raises ValueError if it is invalid."""
        if self.at >= len(self._elements) or len(above) >= MAX_SCHEMA_DEPTH:
            raise ValueError(f"its schema is truncated, or is nested more than {MAX_SCHEMA_DEPTH} levels deep")
        element = self._elements[self.at].fields
        self.at += 1
        names = (*above, _name(element))
        repetition, physical, children = element.get(3, -1), element.get(1), _children(element)
        if not 0 <= repetition <= _REPEATED or (physical is None) == (not children):
            raise ValueError(f"the element {'.'.join(names)} of its schema is invalid")
        repeated = repeated or repetition == _REPEATED
        if physical is not None:
            if not 0 <= physical < _TYPES:
                raise ValueError(f"its column {'.'.join(names)} has type {physical}, which does not exist")
            self.leaves.append(Leaf(len(self.leaves), names, physical, repeated))
        for _ in range(children):
            self.step(names, repeated=repeated)


class Footer:
    """The footer in `data`. The constructor and the methods raise ValueError if it is invalid."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        found = CompactReader(data).read(_FILE)
        for field, name in ((2, "elements of its schema"), (4, "row groups")):
            if field not in found:
                raise ValueError(f"its footer lacks the {name}")
            if len(found[field]) > MAX_ELEMENTS:
                raise ValueError(f"it has {len(found[field])} {name}, more than {MAX_ELEMENTS}")
        self._columns = self._schema(found[2])
        self.leaves: tuple[Leaf, ...] = tuple(leaf for column in self._columns.values() for leaf in column.leaves)
        if len(self.leaves) > MAX_COLUMNS:
            raise ValueError(f"it has {len(self.leaves)} columns, more than {MAX_COLUMNS}")
        self._chunks: dict[tuple[int, int], Chunk] = {}
        self._groups = [self._group(order, group.fields) for order, group in enumerate(found[4])]

    def _schema(self, elements: Sequence[Element]) -> dict[str, _Column]:
        """Columns by name. A schema is its elements in depth-first order, each with the number of its children."""
        walk = _SchemaWalk(elements)
        columns: dict[str, _Column] = {}
        for _ in range(_children(elements[0].fields) if elements else 0):
            start, before = walk.at, len(walk.leaves)
            walk.step((), repeated=False)
            leaves = tuple(walk.leaves[before:])
            name = leaves[0].names[0]
            if name in columns:
                raise ValueError(f"it has two columns {name}")
            columns[name] = _Column(
                tuple(self._data[element.start : element.end] for element in elements[start : walk.at]), leaves
            )
        if walk.at != len(elements) or not columns:
            raise ValueError("its schema is invalid")
        return columns

    def _group(self, order: int, found: dict[int, Any]) -> _Group:
        rows, chunks = found.get(3, -1), found.get(1, ())
        if not 0 <= rows < _LARGEST or len(chunks) != len(self.leaves):
            raise ValueError(f"row group {order} has {rows} rows and {len(chunks)} of {len(self.leaves)} columns")
        return _Group(rows, [chunk.start for chunk in chunks])

    @property
    def groups(self) -> int:
        """The number of row groups."""
        return len(self._groups)

    def rows(self, group: int) -> int:
        """Rows of a row group."""
        return self._groups[group].rows

    def chunk(self, group: int, leaf: Leaf) -> Chunk:
        """The footer's description of a leaf in a row group: consistent in itself, not compared with the file."""
        known = self._chunks.get((group, leaf.place))
        if known is not None:
            return known
        found = self._read(group, leaf, _CHUNK)
        meta = found.get(3, {})
        codec = meta.get(4, -1)
        name = _CODECS[codec] if 0 <= codec < len(_CODECS) else str(codec)
        if found.get(1) or name not in _READABLE_CODECS:
            raise ValueError(f"its column {leaf.path} is compressed with {name}, or in another file")
        if meta.get(1) != leaf.physical:
            raise ValueError(f"its column {leaf.path} has type {meta.get(1)}, but {leaf.physical} in the schema")
        values, plain, stored, data_at = (meta.get(field, -1) for field in (5, 6, 7, 9))
        if not all(0 <= one < _LARGEST for one in (values, plain, stored, data_at)):
            raise ValueError(f"its column {leaf.path} has an invalid size or offset")
        rows = self.rows(group)
        if values < rows or (values > rows and not leaf.repeated):
            raise ValueError(f"its column {leaf.path} has {values} values in {rows} rows")
        chunk = self._chunks[group, leaf.place] = Chunk(codec, values, plain, stored, data_at, meta.get(11))
        return chunk

    def integers(self, group: int, name: str) -> tuple[int, int] | None:
        """Smallest and largest value of a column of 64-bit integers, by its statistics; None if it lacks them."""
        found = self.texts(group, name)
        if found is None:
            return None
        if any(len(one) != 8 for one in found):
            raise ValueError(f"its column {name} has statistics that are not 64-bit integers")
        least, largest = (int.from_bytes(one, "little", signed=True) for one in found)
        if least > largest:
            raise ValueError(f"its column {name} has statistics from {least} to {largest}")
        return least, largest

    def texts(self, group: int, name: str) -> tuple[bytes, bytes] | None:
        """The same for a column of bytes: all values lie, bytewise, between the two."""
        column = self._columns.get(name)
        # Statistics within a list or a structure are not those of the column.
        if column is None or len(column.elements) != 1:
            return None
        statistics = self._read(group, column.leaves[0], _CHUNK_STATISTICS).get(3, {}).get(12, {})
        # Those in the deprecated fields are not read: their sort order is unknown.
        return (statistics[6], statistics[5]) if 5 in statistics and 6 in statistics else None

    def _read(self, group: int, leaf: Leaf, shape: Shape) -> dict[int, Any]:
        return CompactReader(self._data, self._groups[group].chunks[leaf.place]).read(shape)

    def leaves_of(self, names: Collection[str]) -> list[Leaf]:
        """The leaves of columns, in the order of the file."""
        return [leaf for name, column in self._columns.items() if name in names for leaf in column.leaves]

    def rewritten(self, names: Collection[str] | None = None, groups: Sequence[int] = ()) -> bytes:
        """A footer with columns (None: all) and row groups of this one, for the same pages, without optional fields.

        Raises ValueError if one of their chunks is invalid.
        """
        columns = [column for name, column in self._columns.items() if names is None or name in names]
        leaves = [leaf for column in columns for leaf in column.leaves]
        root = structure({4: text(b"schema"), 5: number(len(columns), 32)})
        written = [self._rewritten_group(group, leaves) for group in groups]
        elements = [(root[0], element) for column in columns for element in column.elements]
        _, file = structure(
            {
                1: number(2, 32),
                2: list_of([root, *elements]),
                3: number(sum(self.rows(group) for group in groups)),
                4: list_of(written),
            }
        )
        return file

    def _rewritten_group(self, group: int, leaves: Sequence[Leaf]) -> tuple[int, bytes]:
        chunks = [self.chunk(group, leaf) for leaf in leaves]
        columns = []
        for leaf, chunk in zip(leaves, chunks, strict=True):
            fields = {
                1: number(leaf.physical, 32),
                2: list_of([number(encoding, 32) for encoding in _ENCODINGS]),
                3: list_of([text(name.encode()) for name in leaf.names]),
                4: number(chunk.codec, 32),
                5: number(chunk.values),
                6: number(chunk.plain_size),
                7: number(chunk.stored_size),
                9: number(chunk.data_at),
            }
            if chunk.start != chunk.data_at:
                fields[11] = number(chunk.start)
            columns.append(structure({2: number(0), 3: structure(fields)}))
        return structure(
            {
                1: list_of(columns),
                2: number(sum(chunk.plain_size for chunk in chunks)),
                3: number(self.rows(group)),
            }
        )


def _name(element: dict[int, Any]) -> str:
    name: bytes | None = element.get(4)
    if name is None or len(name) > MAX_NAME:
        raise ValueError(f"an element of its schema lacks a name, or has one of more than {MAX_NAME} bytes")
    return name.decode()


def _children(element: dict[int, Any]) -> int:
    children: int = element.get(5, 0)
    if not 0 <= children <= MAX_ELEMENTS:
        raise ValueError(f"an element of its schema has {children} children")
    return children
