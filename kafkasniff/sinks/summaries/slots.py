"""The values of fields that a table of a template keeps: one slot per field, array or sum, in the scope that owns it.

A field that the kernel does not keep, such as a hidden one, raises `LeftToPython`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kafkasniff.kafka.schema.definition import Field, Struct
from kafkasniff.sinks.summaries import syntax
from kafkasniff.sinks.summaries.interpreter import Shape
from kafkasniff.sinks.summaries.table import NONE, Scope, Slot, Use

SESSION_ID: Final = "session_id"
_NAMES: Final = ("name", "topic", "topic_name")


class LeftToPython(Exception):  # noqa: N818 - not an error: the interpreter makes such summaries
    """The template needs data that the kernel does not have."""


class StructScope(msgspec.Struct, frozen=True, eq=False):
    """A struct that nodes refer to: its layout, its path, and the scope of its fields' slots."""

    struct: Struct
    shape: Shape
    path: tuple[str, ...]
    scope: Scope
    topic: StructScope | None = None
    """The enclosing struct, which names a partition's topic."""


class FieldSlots:
    """The slots of one table."""

    def __init__(self) -> None:
        self._uses: dict[tuple[str, ...], Use] = {}
        """What is kept of each field, by its path."""
        self._session: Slot | None = None

    def _use(self, path: tuple[str, ...]) -> Use:
        return self._uses.setdefault(path, Use())

    def _slot(self, place: StructScope, field: Field, path: tuple[str, ...] = ()) -> Slot:
        """The slot of a field's value; `path`: of the structs between it and the place."""
        # Fields that are hidden, or interpreted, are left to Python.
        if field.secret != "no" or (field.payload and field.type != "records"):
            raise LeftToPython
        use = self._use((*place.path, *path, field.name))
        if use.slot is None:
            use.slot = Slot()
            place.scope.slots.append(use.slot)
        return use.slot

    def _found(self, path: syntax.Path, place: StructScope) -> tuple[Field, Slot] | None:
        """The field at a path through structs, and its slot; None if the version has none."""
        struct: Struct | None = place.struct
        field: Field | None = None
        for depth, name in enumerate(path):
            field = None if struct is None else field_of(struct, name)
            if field is None:
                return None
            if field.array and depth < len(path) - 1:
                raise LeftToPython
            struct = field.struct
        assert field is not None
        return field, self._slot(place, field, path[:-1])

    def _counted(self, path: syntax.Path, place: StructScope) -> Slot | None:
        """The slot for the number of elements of an array, or of nested arrays; None if there are none."""
        struct: Struct | None = place.struct
        field: Field | None = None
        within = False
        for depth, name in enumerate(path):
            field = None if struct is None else field_of(struct, name)
            if field is None:
                return None
            struct = field.struct
            within = within or (field.array and depth < len(path) - 1)
        assert field is not None
        if not within:
            return self._slot(place, field, path[:-1])
        use = self._use((*place.path, *path))
        if use.sum is None:
            use.sum = Slot()
            place.scope.slots.append(use.sum)
        return use.sum

    def _topic(self, place: StructScope) -> tuple[Slot | int, Slot | int]:
        """The slots of a topic's name and id; both precede the fields shown with them."""
        named = next((field for name in _NAMES if (field := field_of(place.struct, name)) is not None), None)
        by_id = field_of(place.struct, "topic_id")
        for field in (named, by_id):
            if field is not None and (field.tag is not None or field.array):
                raise LeftToPython
        return (
            NONE if named is None else self._slot(place, named),
            NONE if by_id is None else self._slot(place, by_id),
        )

    def _has_sessions(self, place: StructScope) -> bool:
        """Whether messages may belong to a fetch session, whose partitions the caller knows."""
        return field_of(place.struct, SESSION_ID) is not None

    def _session_slot(self, place: StructScope) -> Slot:
        if place.path:
            raise LeftToPython
        if self._session is None:
            self._session = Slot()
            place.scope.slots.append(self._session)
        return self._session


def field_of(struct: Struct, name: str) -> Field | None:
    """The field of a struct with this name, tagged or not; None if the version has none."""
    return next((field for field in (*struct.fields, *struct.tagged) if field.name == name), None)
