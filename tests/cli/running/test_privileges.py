"""`--user` and `--keep-root`: what a run becomes, by who started it and what was asked for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from kafkasniff.capture.live import privileges as process_privileges
from kafkasniff.capture.live.privileges import Identity
from kafkasniff.cli.environment import Environment
from kafkasniff.cli.running import privileges
from kafkasniff.cli.running.privileges import Rights, take_rights
from kafkasniff.errors import MissingPartError, UsageError
from tests.cli.console import environment

NOBODY = Identity(65534, 65534, (65534,), "nobody")
ALICE = Identity(1000, 1000, (1000,), "alice")
ROOT = Identity(0, 0, (0,), "root")


class Machine:
    """Who runs kafkasniff, and what the machine lets them do."""

    def __init__(self) -> None:
        self.root = True
        self.others = True
        self.caller: Identity | None = None
        self.unreadable: str | None = None
        self.done: list[Any] = []


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    there = Machine()

    @contextlib.contextmanager
    def acting_as(identity: Identity) -> Iterator[None]:
        there.done.append(("as", identity.name))
        yield
        there.done.append(("back",))

    @contextlib.contextmanager
    def lowered(keep: int) -> Iterator[None]:
        there.done.append(("lowered", keep))
        yield

    replaced = {
        "is_root": lambda: there.root,
        "may_become_others": lambda: there.others,
        "named_identity": {"alice": ALICE, "root": ROOT}.__getitem__,
        "sudo_caller": lambda _: there.caller,
        "nobody": lambda: NOBODY,
        "acting_as": acting_as,
        "become": lambda identity, *, keep: there.done.append(("become", identity, keep)),
        "own_files": list,
        "unreadable": lambda _: there.unreadable,
        "lowered": lowered,
        "confine": lambda folders, ports: there.done.append(("confine", folders, ports)),
    }
    for name, function in replaced.items():
        monkeypatch.setattr(process_privileges, name, function)
    monkeypatch.delenv(privileges.ARROW_THREADS[0], raising=False)
    return there


def taken(user: str | None = None, *, keep: bool = False, own: bool = True) -> Rights:
    options = {"user": user, "keep_root": keep, "quiet": True}
    rights = take_rights(options, environment(owns_process=own))
    assert options == {"quiet": True}
    return rights


def given_up(rights: Rights, machine: Machine) -> list[Any]:
    machine.done.clear()
    rights.give_up()
    return machine.done


@pytest.mark.parametrize(("caller", "expected"), [(None, NOBODY), (ALICE, ALICE)])
def test_root_becomes_the_caller_of_sudo_or_nobody(
    machine: Machine, caller: Identity | None, expected: Identity
) -> None:
    machine.caller = caller
    rights = taken()
    assert rights.suffix == f" as {expected.name}"
    assert given_up(rights, machine) == [("become", expected, 0), ("confine", [], [])]
    assert os.environ[privileges.ARROW_THREADS[0]] == privileges.ARROW_THREADS[1]


UNREADABLE = {"unreadable": "/root/kafkasniff"}


@pytest.mark.parametrize(
    ("there", "user", "keep", "reason"),
    [
        ({}, None, True, "--keep-root"),
        ({}, "root", False, "--user root"),
        ({}, "root", True, "--keep-root"),
        ({"others": False}, None, False, "it lacks CAP_SETUID and CAP_SETGID, which changing user needs"),
        (UNREADABLE, None, False, "nobody may not read /root/kafkasniff, which kafkasniff runs from"),
    ],
)
def test_root_stays_root(machine: Machine, there: dict[str, Any], user: str | None, keep: bool, reason: str) -> None:
    vars(machine).update(there)
    world, rights = environment(), taken(user, keep=keep)
    rights.settle(world, [])
    assert rights.suffix == ""
    (become, _) = given_up(rights, machine)
    assert become[:2] == ("become", None)
    assert said(world).startswith(f"kafkasniff: warning: stays root ({reason}), with ")


@pytest.mark.parametrize(
    ("there", "asked", "message"),
    [
        ({"root": False}, {"user": "alice"}, "only root can choose the user"),
        ({"root": False}, {"keep": True}, "only root can choose the user"),
        ({}, {"user": "alice", "keep": True}, "--keep-root and --user alice cannot be combined"),
        ({}, {"user": "alice", "own": False}, "only available in a process of its own"),
        ({}, {"keep": True, "own": False}, "only available in a process of its own"),
        (UNREADABLE, {"user": "alice"}, "install it where alice may read it"),
    ],
)
def test_what_is_refused(machine: Machine, there: dict[str, Any], asked: dict[str, Any], message: str) -> None:
    vars(machine).update(there)
    with pytest.raises((UsageError, MissingPartError), match=message):
        taken(**asked)


def said(world: Environment) -> str:
    text: str = world.stderr.getvalue()  # type: ignore[attr-defined]  # a StringIO in tests
    return text


@pytest.mark.parametrize(
    ("writes", "reads", "kept"),
    [
        (True, True, "no capabilities"),
        (False, True, "CAP_DAC_OVERRIDE, to write its files, and no other capability"),
        (False, False, "CAP_DAC_OVERRIDE, to write its files, and no other capability"),
        (True, False, "CAP_DAC_READ_SEARCH, to read its own files, and no other capability"),
    ],
)
def test_root_keeps_only_the_capability_that_its_files_need(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, writes: bool, reads: bool, kept: str
) -> None:
    rights, world = taken(keep=True), environment()
    monkeypatch.setattr(privileges, "_may_write", lambda _: writes)
    machine.unreadable = None if reads else "/opt/kafkasniff"
    rights.settle(world, ["/srv"])
    assert said(world).endswith(f"(--keep-root), with {kept}\n")
    capability = (
        0
        if writes and reads
        else process_privileges.mask(
            process_privileges.CAP_DAC_READ_SEARCH if writes else process_privileges.CAP_DAC_OVERRIDE
        )
    )
    assert given_up(rights, machine)[0] == ("become", None, capability)
    with rights.acting():
        assert machine.done[-1] == ("lowered", capability)
