"""Options of commands whose answer is text or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from kafkasniff.cli.options.stacked import Command, stacked

if TYPE_CHECKING:
    from kafkasniff.analysis.detectors import Finding, Severity

__all__ = [
    "color_option",
    "format_option",
    "output_option",
    "presentation_options",
    "quiet_option",
    "traceback_option",
    "wide_option",
]

SEVERITIES: Final = ("error", "warning", "note")
"""`detectors.SEVERITIES`, repeated here so that the detectors are imported only when needed."""

_Decorator = Callable[[Any], Any]

output_option: Final[_Decorator] = click.option(
    "-o", "--output", metavar="FILE", help="Write to FILE instead of stdout."
)
color_option: Final[_Decorator] = click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="When to colour text."
)
traceback_option: Final[_Decorator] = click.option(
    "-v", "--verbose", count=True, help="Show the traceback of an internal error."
)
wide_option: Final[_Decorator] = click.option("--wide", is_flag=True, help="Show all columns of tables, however wide.")
quiet_option: Final[_Decorator] = click.option(
    "-q", "--quiet", is_flag=True, help="No progress and no notes on stderr."
)


def format_option(json: str = "one JSON object") -> _Decorator:
    """`--format`, as `form`; `json`: what JSON output is."""
    return click.option(
        "--format", "form", type=click.Choice(["text", "json"]), default="text", help=f"Text, or {json}."
    )


def fail_on_option(default: Severity | Literal["never"]) -> _Decorator:
    """`--fail-on`: how severe a finding must be for exit code 1."""
    return click.option(
        "--fail-on",
        type=click.Choice([*SEVERITIES, "never"]),
        default=default,
        show_default=True,
        help="Exit with code 1 if a finding is at least this severe.",
    )


def fails(findings: Iterable[Finding], fail_on: str) -> bool:
    """Whether a finding is at least as severe as `--fail-on`."""
    return fail_on != "never" and any(
        SEVERITIES.index(finding.severity) <= SEVERITIES.index(fail_on) for finding in findings
    )


def presentation_options(command: Command) -> Command:
    """The last options of a command: --color, -v, -q."""
    return stacked(command, [color_option, traceback_option, quiet_option])
