"""``python -m tests.reference FOLDER``: the pages of the documentation that follow from the code, for `make docs`.
Options, exit codes, API coverage and bounds are on the site alone; those of `tests.key_pages` are committed."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

import kafkasniff
from kafkasniff.cli.environment import EXIT_CODES, EXIT_ORDER
from kafkasniff.cli.main import command_line
from tests import coverage, key_pages
from tests.key_pages import table_head, table_row

PACKAGE = Path(kafkasniff.__file__).parent
BOUNDED = ("analysis", "capture", "engine", "enrich", "filters", "kafka", "live", "native", "otlp", "redact", "runtime")
BOUNDED += ("tables", "tcp", "timing", "tls")
"""Packages that process input."""

_OPTIONS = """\
# Commands, options, exit codes

`kafkasniff COMMAND --help` and `man kafkasniff-COMMAND` show the same.

Data goes to standard output, everything else to standard error. Repeated filter options are ORed, except `--filter`;
different filter options are ANDed.
"""


def options_page() -> str:
    return "\n".join(_options_lines()) + "\n"


def _options_lines() -> Iterator[str]:
    rows = list(_option_rows())
    shared = {row: [command for command, other in rows if other == row] for _, row in rows}
    yield _OPTIONS
    yield "## Options of several commands"
    groups: dict[str, list[tuple[str, str]]] = {}
    for row, commands in shared.items():
        if len(commands) > 1:
            groups.setdefault(", ".join(commands), []).append(row)
    for these, among in sorted(groups.items(), key=lambda group: -len(group[1])):
        yield f"\n{these}:\n"
        yield from (f"- {option}: {effect}" for option, effect in among)
    for name, command in _commands():
        own = [row for at, row in rows if at == name and len(shared[row]) == 1]
        usage = " ".join(command.collect_usage_pieces(_context(name, command)))
        yield f"\n## {name}\n\n`kafkasniff {name} {usage}`\n"
        yield from _paragraphs(command.help or "")
        if own:
            yield ""
            yield from (f"- {option}: {effect}" for option, effect in own)
        if isinstance(command, click.Group):
            yield "\n[Questions](questions.md) lists the questions."
    yield f"\n## Exit codes\n\n{EXIT_ORDER}\n"
    yield from table_head("code", "meaning")
    yield from (table_row(*pair) for pair in EXIT_CODES)


def _context(name: str, command: click.Command) -> click.Context:
    whole = click.Context(command_line, info_name="kafkasniff", **command_line.context_settings)
    return click.Context(command, info_name=name, parent=whole, max_content_width=10_000)


def _commands() -> Iterator[tuple[str, click.Command]]:
    whole = click.Context(command_line, info_name="kafkasniff", **command_line.context_settings)
    for name in command_line.list_commands(whole):
        command = command_line.get_command(whole, name)
        yield name, command


def _option_rows() -> Iterator[tuple[str, tuple[str, str]]]:
    for name, command in _commands():
        context = _context(name, command)
        for parameter in command.get_params(context):
            record = parameter.get_help_record(context)
            if record is not None and isinstance(parameter, click.Option) and "--help" not in parameter.opts:
                yield name, (f"`{record[0]}`", " ".join(record[1].split()))


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs as Click separates them; those whose line breaks are kept become blocks."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ""
        lines = [line.strip() for line in paragraph.splitlines()]
        if lines[0] == "\b":
            yield from ("```", *lines[1:], "```")
        else:
            yield " ".join(lines)


class Bound(NamedTuple):
    """A constant that bounds what input takes."""

    name: str
    """With its module, without the package's name."""
    value: int
    text: str
    """Its docstring; empty if it has none."""


def bounds() -> Iterator[Bound]:
    """All public `MAX_…` of packages that process input."""
    for path in sorted(path for folder in BOUNDED for path in (PACKAGE / folder).rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        source = path.read_text(encoding="utf-8")
        if "\nMAX_" not in source:
            continue
        nodes = ast.parse(source).body
        for node, after in zip(nodes, [*nodes[1:], None], strict=True):
            target = node.target if isinstance(node, ast.AnnAssign) else None
            if isinstance(target, ast.Name) and target.id.startswith("MAX_"):
                documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                text = str(after.value.value) if documented else ""  # type: ignore[union-attr]  # checked above
                value = getattr(importlib.import_module(f"kafkasniff.{module}"), target.id)
                if isinstance(value, int):
                    yield Bound(f"{module}.{target.id}", value, " ".join(text.split()))


def bounds_page() -> str:
    lines = [
        "# Bounds",
        "",
        "What input may use, by the module that enforces the bound ([guarantees](../../SECURITY.md)).",
        "",
    ]
    lines += [*table_head("constant", "value", "what it bounds")]
    lines += [table_row(f"`{one.name}`", f"{one.value:,}", one.text) for one in bounds()]
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    return {
        "options.md": options_page(),
        "coverage.md": coverage.page(),
        "bounds.md": bounds_page(),
        **key_pages.pages(),
    }


def main(arguments: list[str]) -> int:
    (folder,) = map(Path, arguments)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
