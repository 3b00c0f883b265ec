"""A run that is cut into many, each going on from the state of the one before, yields what one run yields."""

from __future__ import annotations

import os
import pickle
import pickletools
import resource
from pathlib import Path

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.errors import UsageError
from kafkasniff.inspector import Inspector, Output
from kafkasniff.state import dump_inspector, load_inspector
from kafkasniff.state_opcodes import refusal
from tests.choice import one_in

CAPTURES = sorted((Path(__file__).parent.parent / "captures").glob("*.pcap*"))


def run(capture: Path, *, cut: bool) -> list[Output]:
    inspector = Inspector()
    events: list[Output] = []
    with open_captures([capture], chunk_size=5_000) as source:
        for batch in source:
            events += inspector.feed(batch)
            if cut:
                inspector = load_inspector(dump_inspector(inspector))
    return events + inspector.close()


@pytest.mark.parametrize("capture", one_in(3, CAPTURES), ids=lambda path: path.name)
def test_runs_that_go_on_yield_what_one_run_yields(capture: Path) -> None:
    assert run(capture, cut=True) == run(capture, cut=False)


def state() -> bytes:
    inspector = Inspector()
    with open_captures([CAPTURES[0]]) as source:
        for batch in source:
            inspector.feed(batch)
    return dump_inspector(inspector)


class Harm:
    """A pickle that runs a command."""

    def __reduce__(self) -> object:
        return os.mkdir, (self.path,)

    def __init__(self, path: str) -> None:
        self.path = path


def test_a_hostile_state_does_nothing(tmp_path: Path) -> None:
    header = state().split(b"\n", 1)[0] + b"\n"
    target = tmp_path / "made"
    with pytest.raises(UsageError, match="damaged"):
        load_inspector(header + pickle.dumps(Harm(str(target))))
    assert not target.exists()
    for module, name in (
        ("kafkasniff.accounts", "hashlib.blake2b"),
        ("kafkasniff.accounts", "endpoint"),
        ("kafkasniff.kafka.message", "Struct"),
        ("builtins", "eval"),
        ("kafkasniff.capture.live", "open_live"),
    ):
        with pytest.raises(UsageError, match="damaged"):
            load_inspector(header + b"\x80\x04c" + f"{module}\n{name}\n".encode() + b".")


def test_states_that_cannot_be_used() -> None:
    good = state()
    header, rest = good.split(b"\n", 1)
    with pytest.raises(UsageError, match="no state of kafkasniff"):
        load_inspector(b"")
    with pytest.raises(UsageError, match=r"written by kafkasniff 0\.0\.7"):
        load_inspector(b"kafkasniff state 0.0.7\n" + rest)
    for cut in (0, 1, len(rest) // 2, len(rest) - 1):
        with pytest.raises(UsageError, match="damaged"):
            load_inspector(header + b"\n" + rest[:cut])
    with pytest.raises(UsageError, match="no state of an inspector"):
        load_inspector(header + b"\n" + pickle.dumps({"a": 1}))


NEVER_WRITTEN = (
    *(
        "PUT",
        "BINPUT",
        "LONG_BINPUT",
        "GET",
        "INT",
        "LONG",
        "FLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
    ),
    *("GLOBAL", "INST", "OBJ", "LIST", "DICT", "DUP", "PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4"),
    *("NEXT_BUFFER", "READONLY_BUFFER"),
)
"""Instructions of older protocols, and those that pickle writes only where it is asked to."""


@pytest.mark.parametrize("opcode", pickletools.opcodes, ids=lambda opcode: opcode.name)
def test_only_what_pickle_writes_is_obeyed(opcode: pickletools.OpcodeInfo) -> None:
    told = refusal(b"\x80\x05" + opcode.code.encode("latin-1") + bytes(20) + b".", 0)
    assert (told == f"instruction {ord(opcode.code):#04x} at byte 2") == (opcode.name in NEVER_WRITTEN)


def test_the_walk_is_that_of_pickle() -> None:
    """Behind everything that a state holds, an instruction is seen where pickle's own walk sees it."""
    good = state()
    header = good.index(b"\n") + 1
    assert len({opcode.name for opcode, _, _ in pickletools.genops(good[header:])}) > 20
    assert refusal(good, header) is None
    for _, _, at in list(pickletools.genops(good[header:]))[::97]:
        assert at is not None
        place = header + at
        assert refusal(good[:place] + b"r" + good[place:], header) == f"instruction 0x72 at byte {place}"
        assert refusal(good[:place], header) == "it is cut off"


def test_a_small_state_cannot_take_much_memory() -> None:
    """LONG_BINPUT would have a table of 2**28 entries made."""
    header = state().split(b"\n", 1)[0] + b"\n"
    had = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UsageError, match="instruction 0x72 at byte"):
        load_inspector(header + b"\x80\x05Nr\xff\xff\xff\x07.")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - had < 100_000
