"""``python -m tests.reference``: regenerate the parts of docs/ that follow from the code.

These are the options and exit codes of all commands (docs/options.md), and the list of detectors with their thresholds
(docs/detectors.md).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from kafkasniff.analysis.detectors import detector_names, find_detector
from kafkasniff.analysis.parameters import parameters_of
from kafkasniff.cli.exit_codes import EXIT_CODES, EXIT_ORDER
from kafkasniff.cli.main import command_line

DOCS = Path(__file__).parent.parent / "docs"
_THRESHOLD = re.compile(r"- `\w+` = ")
"""Begin of a threshold in docs/detectors.md; other lists begin otherwise."""

_OPTIONS = """\
# Commands, options, exit codes

This page is generated: `kafkasniff COMMAND --help` and `man kafkasniff-COMMAND` show the same.

Data goes to standard output, everything else to standard error. Repeated filter options are ORed, except `--filter`;
different filter options are ANDed.
"""


def options_page() -> str:
    """The content of docs/options.md."""
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
            yield "\n[Questions about captures and tables](analyses.md) lists the questions."
    yield f"\n## Exit codes\n\n{EXIT_ORDER}\n"
    yield from _table("code", "meaning")
    yield from (_row(*pair) for pair in EXIT_CODES)


def _context(name: str, command: click.Command) -> click.Context:
    whole = click.Context(command_line, info_name="kafkasniff", **command_line.context_settings)
    return click.Context(command, info_name=name, parent=whole, max_content_width=10_000)


def _commands() -> Iterator[tuple[str, click.Command]]:
    whole = click.Context(command_line, info_name="kafkasniff", **command_line.context_settings)
    for name in command_line.list_commands(whole):
        command = command_line.get_command(whole, name)
        assert command is not None
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


def detectors_page(text: str) -> str:
    """docs/detectors.md with the thresholds from the code and the page's own sentences."""
    head, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    found = {section.splitlines()[0].removeprefix("## "): section for section in sections}
    parts = [head.rstrip() + "\n"]
    for name in detector_names():
        thresholds = []
        for one in parameters_of(find_detector(name)):
            default = one.default_text if one.default_text is not None else str(one.default)
            thresholds.append(f"- `{one.name}` = {default}: {one.help}")
        parts.append(_with_thresholds(found.get(name, f"## {name}\n"), thresholds))
    return "\n".join(parts)


def _with_thresholds(section: str, thresholds: list[str]) -> str:
    """The section with the list of its thresholds at its end, replacing any that it has."""
    kept = [part for part in section.rstrip().split("\n\n") if not _THRESHOLD.match(part)]
    return "\n\n".join([*kept, "\n".join(thresholds)]) + "\n"


def _table(*heads: str) -> Iterator[str]:
    yield _row(*heads)
    yield "|" + " --- |" * len(heads)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def pages() -> dict[Path, str]:
    """The expected content of these pages."""
    detectors = DOCS / "detectors.md"
    return {
        DOCS / "options.md": options_page(),
        detectors: detectors_page(detectors.read_text(encoding="utf-8")),
    }


def main() -> int:
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
