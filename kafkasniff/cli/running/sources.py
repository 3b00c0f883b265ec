"""Resolves CAPTURE|DIR… on a command line: captures, folders of captures, and exports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkasniff.cli.environment import Environment
from kafkasniff.errors import UsageError
from kafkasniff.runtime.addresses import name_of
from kafkasniff.runtime.export_manifest import is_export
from kafkasniff.text.printable import printable

if TYPE_CHECKING:
    from kafkasniff.analysis.export import Export

__all__ = ["Sources", "divide_sources", "open_export", "take_captures"]


MAX_NAMED: Final = 3
"""Arguments of a command that are named in the heading of its output; more are counted."""


class Sources(NamedTuple):
    """The sources, each kind in the order given."""

    captures: tuple[str, ...]
    """Files and `-`; files of a folder are sorted by name."""
    folders: tuple[str, ...]
    """Exports."""

    def heading(self, named: Sequence[str]) -> str:
        """The sources for the heading of a text: the arguments, or how many files they are; JSON has all names."""
        if len(named) <= MAX_NAMED:
            return ", ".join(printable(one) for one in named)
        counts = (len(self.captures), "capture"), (len(self.folders), "export")
        return " and ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count)

    def capture_arguments(self, named: Sequence[str]) -> list[str]:
        """The arguments that name captures, for the text of another command; a placeholder for many."""
        found = [name_of(one) for one in named if one not in self.folders]
        return found if len(found) <= MAX_NAMED else ["CAPTURE..."]


def divide_sources(environment: Environment, named: Sequence[str], *, filtered: bool) -> Sources:
    """Separate captures from exports. Raises UsageError if a capture is a terminal, or if an export is to be filtered.

    Raises CaptureError if a folder is neither an export nor contains captures.
    """
    folders = tuple(one for one in named if is_export(one))
    if filtered and folders:
        raise UsageError(f"filters are for captures; {name_of(folders[0])} is an export: filter when exporting")
    return Sources(tuple(_captures(environment, [one for one in named if one not in folders])), folders)


def take_captures(environment: Environment, named: Sequence[str], *, by_name: bool = False) -> tuple[str, ...]:
    """The captures, for a command that takes no exports; `by_name` as in `with_folders`.

    Raises UsageError and CaptureError.
    """
    for one in named:
        if is_export(one):
            raise UsageError(f"{name_of(one)} is an export, not a capture: `kafkasniff stats {name_of(one)}` reads it")
    return tuple(_captures(environment, named, by_name=by_name))


def open_export(folder: str, purpose: str) -> Export:
    """An export that has exchanges; `purpose` ends the error: who needs them. Raises CaptureError, UsageError."""
    from kafkasniff.analysis.export import Export

    export = Export.open(folder)
    if "exchanges" not in export.tables:
        raise UsageError(f"{export.name} has no table exchanges, which {purpose}")
    return export


def _captures(environment: Environment, named: Sequence[str], *, by_name: bool = False) -> list[str]:
    if "-" in named and environment.stdin_tty:
        raise UsageError("stdin is a terminal: pipe a capture into it")
    from kafkasniff.capture.timeline.locations import with_folders

    return with_folders(named, by_name=by_name)
