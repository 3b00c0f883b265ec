"""Structures that Python and the kernel share: the same fields in the same order and of the same size."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from kafkasniff.native import calls
from kafkasniff.native.names import NativeNames
from kafkasniff.native.sessions import NativeSessions
from tests.conftest import ROOT

SIZES = {"u8": 1, "u16": 2, "i16": 2, "u32": 4, "i32": 4, "u64": 8, "i64": 8, "usize": 8}
PAIRS: list[tuple[type[ctypes.Structure], str, str]] = [
    (calls.CompressedBatch, "call.zig", "Batch"),
    (calls.Control, "call.zig", "Control"),
    (calls.Call, "call.zig", "Call"),
    (calls.Base, "call.zig", "Base"),
    (calls.Item, "call.zig", "Item"),
    (calls.SummaryCall, "summary.zig", "Call"),
    (NativeNames, "names.zig", "Names"),
    (NativeSessions, "sessions.zig", "Sessions"),
]


def declared(file: str, name: str) -> list[tuple[str, str]]:
    """(name, type) of the fields of a structure in Zig."""
    source = Path(ROOT / "kafkasniff" / "kernel" / file).read_text()
    found = re.search(rf"\bconst {name} = extern struct {{\n(.*?)^}};", source, re.DOTALL | re.MULTILINE)
    assert found is not None
    return re.findall(r"^    (\w+): ([^,=]+?)(?: = [^,]+)?,$", found[1], re.MULTILINE)


@pytest.mark.parametrize(("structure", "file", "name"), PAIRS, ids=lambda value: getattr(value, "__name__", None))
def test_fields(structure: type[ctypes.Structure], file: str, name: str) -> None:
    mine, theirs = structure._fields_, declared(file, name)
    assert len(mine) == len(theirs)
    compared = 0
    for (own, kind, *_), (other, text) in zip(mine, theirs, strict=True):
        size = 8 if text.startswith(("*", "?*", "[*]", "?[*]")) else SIZES.get(text)
        if match := re.fullmatch(r"\[(\d+)\](\w+)", text):
            size = int(match[1]) * SIZES[match[2]]
        if size is not None:
            assert ctypes.sizeof(kind) == size, (own, other)
            compared += 1
    assert compared > len(mine) // 2


def test_structures_have_no_gaps() -> None:
    """Padding that one compiler chooses would be another one's choice, too."""
    for structure, _, _ in PAIRS:
        end = 0
        for own in structure._fields_:
            field = getattr(structure, own[0])
            assert field.offset == end, own
            end += field.size
        assert end == ctypes.sizeof(structure)


def test_the_address_of_a_text() -> None:
    kept: list[bytes] = []
    text = b"orders\0more"
    assert ctypes.string_at(calls.address_of(text, kept), len(text)) == text
    assert kept == [text]


def test_flags_of_a_call_do_not_overlap() -> None:
    """Each is a bit of its own, but for alternatives."""
    groups = [calls.FORMS, calls.PAYLOAD, calls.RECORDS]
    singles = [calls.SHOW_SECRETS, calls.JSON_RECORDS]
    masks = [0] * len(groups)
    for place, group in enumerate(groups):
        for value in group.values():
            masks[place] |= value
    everything = [*masks, *singles]
    for place, one in enumerate(everything):
        assert all(not one & other for other in everything[place + 1 :])
