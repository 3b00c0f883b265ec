"""Captures without any packet that could be read: what a run does about them.

A capture is bad if it is empty or does not begin like a capture. One that is cut short or damaged further on is read as
far as it goes, and one that cannot be opened ends the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from kafkasniff.errors import CaptureError
from kafkasniff.model import Problem
from kafkasniff.tables.exports.captures import Look, ManifestCapture
from kafkasniff.tables.exports.manifest import Manifest

__all__ = ["OnBadCapture", "Sorted", "sort_out"]

OnBadCapture = Literal["fail", "skip", "quarantine"]
"""What to do about a bad capture:

- fail: end the run
- skip: report it, and look at it again in the next run
- quarantine: report it, and ignore it in later runs as long as its bytes are the same
"""


class Sorted(NamedTuple):
    """Captures of a run."""

    good: list[Look]
    bad: list[ManifestCapture]
    problems: list[Problem]
    """One for each bad capture."""


def sort_out(looks: Iterable[Look], policy: OnBadCapture, manifest: Manifest | None) -> Sorted:
    """Sort bad captures out; those that are in quarantine are ignored.

    Raises CaptureError if one is bad and the policy is "fail", or if all are bad and there is no export yet.
    """
    found = Sorted([], [], [])
    quarantined = set() if manifest is None else {one.key for one in manifest.quarantined}
    seen: set[str] = set()
    for look in looks:
        if look.capture.key is not None and look.capture.key in quarantined:
            continue
        if look.flaw is None:
            found.good.append(look)
            continue
        if look.path in seen:
            continue
        seen.add(look.path)
        if policy == "fail":
            raise CaptureError(f"{look.flaw} (--on-bad-capture skip reads the others)")
        found.bad.append(look.capture)
        found.problems.append(Problem("capture-skipped", f"skipped: {look.flaw}", capture=look.capture.name))
    if not found.good and found.bad and manifest is None:
        raise CaptureError(f"no capture can be read; the first one: {found.problems[0].detail}")
    return found
