"""The help of a command: options in sections, and examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

__all__ = ["SECTIONS", "SectionedCommand", "sections"]

SECTIONS: Final = {
    "Capture": (
        *("--interface", "--list-interfaces", "--snaplen", "--buffer-size", "--promiscuous", "--reopen"),
        *("--user", "--keep-root", "--duration"),
    ),
    "Recorder": ("--recorder", "--cases", "--on", "--exec", "--webhook"),
    "Packet files": ("--write", "--write-all", "--rotate-size", "--rotate-every", "--rotate-files"),
    "Input": (
        *("--port", "--max-frame", "--keylog", "--two-pass", "--on-bad-capture"),
        *("--from", "--target", "--response", "--version", "--release", "--file"),
    ),
    "Names and schemas": ("--definitions", "--topic-ids", "--hosts", "--registry", "--schema"),
    "Selection": (
        *("--filter", "--api", "--topic", "--client-id", "--host", "--errors", "--slower-than", "--connection"),
        *("--exchange", "--correlation-id", "--since", "--until", "--count", "--key", "--offset", "--trace"),
    ),
    "Answer": (
        *("--only", "--skip", "--set", "--list", "--min-change", "--min-count", "--significance", "--all"),
        *("--by", "--each", "--slowest", "--program", "--coverage", "--check"),
    ),
    "Output": (
        *("--format", "--fields", "--output", "--records", "--no-records", "--bytes", "--hex", "--color", "--verbose"),
        *("--quiet", "--top", "--browse", "--serve", "--serve-port", "--wide", "--write-matching", "--fail-on"),
    ),
    "Tables": (
        *("--tables", "--no-bodies", "--no-json", "--discard-state", "--export", "--export-every"),
        *("--compact", "--keep"),
    ),
    "Spark and lakehouses": ("--engine", "--master", "--conf", "--table", "--register", "--delta"),
    "Metrics": ("--metrics", "--metrics-labels", "--metrics-token-file", "--metrics-cert", "--metrics-key", "--otlp"),
    "Server": ("--http", "--token-file"),
    "Secrets and payload": ("--show-secrets", "--show-payload", "--no-payload", "--hash-payload", "--hash-salt"),
    "Performance": ("--memory", "--query-memory", "--query-disk", "--jobs"),
}
"""Names of options by section, in the order of the help. Parameters of questions are in the section `Answer`, too."""

_SECTION: Final = {name: section for section, names in SECTIONS.items() for name in names} | {"--help": "Options"}


class SectionedCommand(click.Command):
    """A command whose help has sections, and examples at its end."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section."""
        for title, records in sections(self, ctx):
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        from kafkasniff.cli.options.examples import write_examples

        write_examples(self.name, formatter)


def sections(command: click.Command, context: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The options of a command by section, each with its names and its help."""
    found: dict[str, list[tuple[str, str]]] = {title: [] for title in (*SECTIONS, "Options")}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        # Arguments are described in the usage.
        if record is not None and isinstance(parameter, click.Option):
            names = (_SECTION[one] for one in parameter.opts if one in _SECTION)
            found[next(names, "Answer")].append(record)
    for title, records in found.items():
        if records:
            yield title, records
