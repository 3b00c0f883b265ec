"""`--user` and `--keep-root`: the user that a live capture continues as once its interfaces are open."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.options.shared_options import Command, stacked
from kafkasniff.errors import MissingPartError, OutputError, UsageError

if TYPE_CHECKING:
    from kafkasniff.capture.live.privileges import Identity

ARROW_THREADS: Final = ("JE_ARROW_MALLOC_CONF", "background_thread:false")
"""jemalloc's own variable, with the prefix that Arrow is built with."""
ROOT: Final = 0


def user_options(command: Command) -> Command:
    """`--user`, `--keep-root`."""
    return stacked(
        command,
        [
            click.option(
                "--user",
                metavar="NAME[:GROUP]",
                help="Drop root to this user once the interfaces are open [default: the user who ran sudo, or nobody].",
            ),
            click.option("--keep-root", is_flag=True, help="Stay root, without capabilities. Same as --user root."),
        ],
    )


class Rights:
    """What a run does with its initial privileges.

    - `identity`: the user to become; None: no change
    - `drops`: drop all privileges that are not needed
    - `stays`: stay root, for this reason
    - `opens`: files that are opened once belong to root, who named them, and are opened with root's privileges
    """

    def __init__(
        self,
        identity: Identity | None = None,
        *,
        drops: bool = False,
        stays: str | None = None,
        opens: bool = False,
    ) -> None:
        self._identity = identity
        self._drops = drops
        self._stays = stays
        self._opens = opens
        self._keep = 0
        self._folders: list[str] = []
        self._ports: list[int] = []

    @property
    def suffix(self) -> str:
        """` as NAME`, to be appended to a message; empty without a change of user."""
        return "" if self._identity is None else f" as {self._identity.name}"

    @property
    def name(self) -> str | None:
        """The user that the run continues as; None without a change of user."""
        return None if self._identity is None else self._identity.name

    def settle(self, environment: Environment, folders: Iterable[str], ports: Iterable[int] = ()) -> None:
        """Find out which capabilities a run that stays root needs, and warn that it stays root.

        `folders`: where files are made during the run; `ports`: which TCP ports it connects to.
        """
        self._folders, self._ports = list(folders), list(ports)
        if self._stays is None:
            return
        from kafkasniff.capture.live.privileges import (
            CAP_DAC_OVERRIDE,
            CAP_DAC_READ_SEARCH,
            lowered,
            mask,
            own_files,
            unreadable,
        )

        paths = own_files()
        with lowered(0):
            writes = not all(_may_write(folder) for folder in self._folders)
            reads = unreadable(paths) is not None
        kept = "no capabilities"
        if writes:
            self._keep, kept = mask(CAP_DAC_OVERRIDE), "CAP_DAC_OVERRIDE, to write its files,"
        elif reads:
            self._keep, kept = mask(CAP_DAC_READ_SEARCH), "CAP_DAC_READ_SEARCH, to read its own files,"
        more = " and no other capability" if self._keep else ""
        environment.say(f"warning: stays root ({self._stays}), with {kept}{more}")

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Within the block, files are made with the privileges that the run will have."""
        if self._identity is not None:
            from kafkasniff.capture.live.privileges import acting_as

            with acting_as(self._identity):
                yield
        elif self._stays is not None:
            from kafkasniff.capture.live.privileges import lowered

            with lowered(self._keep):
                yield
        else:
            yield

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Within the block, files are opened that are never reopened.

        If root started the run and named no user, they are opened as root: root may write there, and root's files do
        not become the property of a user shared with others.
        """
        with contextlib.nullcontext() if self._opens else self.acting():
            yield

    def become(self) -> None:
        """Become that user irrevocably. Raises MissingPartError."""
        if self._drops:
            from kafkasniff.capture.live.privileges import become

            become(self._identity, keep=self._keep)

    def give_up(self) -> None:
        """Become that user irrevocably, able to change only the run's files. Raises MissingPartError."""
        self.become()
        if self._drops:
            from kafkasniff.capture.live.privileges import confine

            confine(self._folders, self._ports)

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Adds advice to errors about files that the user may not write."""
        try:
            yield
        except OutputError as error:
            if self._identity is None or not isinstance(error.__cause__, PermissionError):
                raise
            name = self._identity.name
            advice = (
                f"{name}, as whom live continues, needs the right to write there; or use --user NAME or --keep-root"
            )
            raise OutputError(f"{error} ({advice})") from error.__cause__


def _may_write(folder: str) -> bool:
    """Whether files can be made, and existing ones read, in a folder that may not exist yet."""
    place = Path(folder)
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
        owner = place.stat().st_uid
    except PermissionError:
        return False
    return owner == ROOT and os.access(place, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def take_rights(options: dict[str, Any], environment: Environment) -> Rights:
    """Privileges by `user_options`, which are removed from `options`, and the user who called sudo.

    Raises UsageError, MissingPartError.
    """
    user: str | None = options.pop("user")
    keep: bool = options.pop("keep_root")
    if not environment.owns_process:
        if user is not None or keep:
            raise UsageError("--user and --keep-root are only available in a process of its own")
        return Rights()
    from kafkasniff.capture.live.privileges import is_root, may_become_others, named_identity, nobody, sudo_caller

    # Importing Arrow starts its allocator's thread, which would keep the privileges that this thread drops.
    os.environ.setdefault(*ARROW_THREADS)
    named = None if user is None else named_identity(user)
    if keep and named is not None and named.uid != ROOT:
        raise UsageError(f"--keep-root and --user {named.name} cannot be combined")
    if not is_root():
        if keep or (named is not None and named.uid != os.getuid()):
            raise UsageError("--user and --keep-root: only root can choose the user to continue as")
        # There may be capabilities, from the program's file or from the parent process.
        return Rights(drops=True)
    if keep or (named is not None and named.uid == ROOT):
        return Rights(drops=True, stays="--keep-root" if keep else "--user root", opens=True)
    if named is None and not may_become_others():
        return Rights(drops=True, stays="it lacks CAP_SETUID and CAP_SETGID, which changing user needs", opens=True)
    caller = sudo_caller(environment.environ)
    identity = named or caller or nobody()
    path = _unreadable_for(identity)
    if path is None:
        return Rights(identity, drops=True, opens=named is None and caller is None)
    reason = f"{identity.name} may not read {path}, which kafkasniff runs from"
    if named is not None:
        raise MissingPartError(f"{reason}: install it where {identity.name} may read it")
    return Rights(drops=True, stays=reason, opens=caller is None)


def _unreadable_for(identity: Identity) -> str | None:
    """The part of kafkasniff, its packages or Python that the user may not read."""
    from kafkasniff.capture.live.privileges import acting_as, own_files, unreadable

    paths = own_files()
    with acting_as(identity):
        return unreadable(paths)
