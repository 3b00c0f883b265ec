"""A run that is cut into many, each going on from the state of the one before, yields what one run yields."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.errors import UsageError
from kafkasniff.inspector import Inspector, Output
from kafkasniff.state import dump_inspector, load_inspector

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


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name)
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
