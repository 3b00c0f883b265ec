"""Captures without any packet that could be read: what a run does about them.

A capture is bad if it is empty or does not begin like a capture. One that is cut short or damaged further on is read as
far as it goes, and one that cannot be opened ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar, get_args

from kafkasniff.capture.timeline.locations import for_each
from kafkasniff.capture.timeline.splits import open_whole
from kafkasniff.errors import CaptureError, UnreachableError
from kafkasniff.model import Problem
from kafkasniff.tables.exports.captures import KeptHead, Look, ManifestCapture
from kafkasniff.tables.exports.manifest import Manifest

__all__ = ["POLICIES", "OnBadCapture", "Sorted", "sort_out"]

OnBadCapture = Literal["fail", "skip", "quarantine"]
"""What to do about a bad capture:

- fail: end the run
- skip: report it, and look at it again in the next run
- quarantine: report it, and ignore it in later runs as long as its bytes are the same
"""
POLICIES: tuple[OnBadCapture, ...] = get_args(OnBadCapture)


class Sorted(NamedTuple):
    """Captures of a run."""

    good: list[Look]
    bad: list[ManifestCapture]
    problems: list[Problem]
    """One for each bad capture."""


_Item = TypeVar("_Item")


def sort_out(
    look_at: Callable[[_Item], Look],
    items: Sequence[_Item],
    policy: OnBadCapture,
    manifest: Manifest | None,
    *,
    remote: bool = False,
) -> Sorted:
    """Look at captures and sort bad ones out; those that are in the export are not read any further.

    `remote`: they are in a remote file system, so that many are looked at at the same time.

    Raises CaptureError if one is bad and the policy is "fail", or if all are bad and there is no export yet.
    """
    found = Sorted([], [], [])
    done = set() if manifest is None else {one.key for one in manifest.captures}
    quarantined = set() if manifest is None else {one.key for one in manifest.quarantined}
    seen: set[str] = set()

    def examined(item: _Item) -> tuple[Look, str | None]:
        look = look_at(item)
        key = look.capture.key
        flaw = None if key is None or key in done or key in quarantined else _flaw(look)
        if isinstance(look.read_at, KeptHead):
            look.read_at.forget()
        return look, flaw

    for look, reason in for_each(examined, items, remote=remote):
        key = look.capture.key
        if key is not None and key in quarantined:
            continue
        if reason is None:
            found.good.append(look)
            continue
        if look.path in seen:
            continue
        seen.add(look.path)
        if policy == "fail":
            raise CaptureError(f"{reason} (--on-bad-capture skip leaves it out)")
        found.bad.append(look.capture)
        found.problems.append(Problem("capture-skipped", f"skipped: {reason}", capture=look.capture.name))
    if not found.good and found.bad and manifest is None:
        raise CaptureError(f"no capture can be read; the first one: {found.problems[0].detail}")
    return found


def _flaw(look: Look) -> str | None:
    """Why a capture is bad; None if it is not. Raises UnreachableError."""
    assert look.read_at is not None
    assert look.capture.size is not None
    try:
        open_whole(look.read_at, look.capture.name, 0, look.capture.size).close()
    except UnreachableError:
        raise
    except CaptureError as error:
        return str(error)
    return None
