"""`--user`: as whom a live capture goes on once its interfaces are open."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment
from kafkasniff.errors import MissingPartError, OutputError, UsageError

if TYPE_CHECKING:
    from kafkasniff.capture.dropping import Identity

__all__ = ["Rights", "take_rights", "user_option"]


ARROW_THREADS: Final = ("JE_ARROW_MALLOC_CONF", "background_thread:false")
"""jemalloc's own variable, by the prefix that Arrow builds it with."""


def user_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--user`."""
    return click.option(
        "--user",
        metavar="NAME[:GROUP]",
        help="Of root: go on as this user once the interfaces are open [default: who called sudo]; `root` to stay.",
    )(command)


class Rights:
    """What a run does with the rights that it was started with.

    `identity`: whom it becomes; None: it stays who it is. `drops`: it gives up what it can.
    """

    def __init__(self, identity: Identity | None = None, *, drops: bool = False) -> None:
        self._identity = identity
        self._drops = drops

    @property
    def told(self) -> str:
        """As whom, to be read behind what is done."""
        return "" if self._identity is None else f" as {self._identity.name}"

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Within the block, files are made by whom the run becomes."""
        if self._identity is None:
            yield
            return
        from kafkasniff.capture.dropping import acting_as

        with acting_as(self._identity):
            yield

    def give_up(self) -> None:
        """Become that user, without a way back. Raises MissingPartError."""
        if self._drops:
            from kafkasniff.capture.dropping import become

            become(self._identity)

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """What that user may not write is told with what to do about it."""
        try:
            yield
        except OutputError as error:
            if self._identity is None or not isinstance(error.__cause__, PermissionError):
                raise
            advice = f"{self._identity.name}, as whom this goes on, needs the right to write there, or: --user root"
            raise OutputError(f"{error} ({advice})") from error.__cause__


def take_rights(options: dict[str, Any], environment: Environment) -> Rights:
    """What `user_option`, which is taken out of `options`, and the caller of sudo make of it.

    Raises UsageError, MissingPartError.
    """
    user: str | None = options.pop("user")
    if not environment.owns_process:
        if user is not None:
            raise UsageError("--user is for a process of its own")
        return Rights()
    from kafkasniff.capture.dropping import is_root, named_identity, sudo_caller, unreadable

    # Arrow's allocator starts a thread when it is imported, which would keep what this one gives up.
    os.environ.setdefault(*ARROW_THREADS)
    identity = sudo_caller(environment.environ) if user is None else named_identity(user)
    if not is_root():
        if user is not None and identity is not None and identity.uid != os.getuid():
            raise UsageError("--user: only root can go on as another user")
        # There may be capabilities, by the file of the program or from whatever started it.
        return Rights(drops=True)
    if identity is None or not identity.uid:
        return Rights()
    path = unreadable(identity)
    if path is None:
        return Rights(identity, drops=True)
    reason = f"{identity.name} may not read {path}, which kafkasniff runs from"
    if user is not None:
        raise MissingPartError(f"{reason}: install it where {identity.name} may read it")
    environment.say(f"goes on as root, since {reason}")
    return Rights()
