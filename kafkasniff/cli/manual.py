"""The manual pages, generated from `--help`: `python -m kafkasniff.cli.manual docs/man`.

One page for kafkasniff and one for each command, in the macros of man(7).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from kafkasniff.cli.environment import EXIT_CODES, EXIT_ORDER
from kafkasniff.cli.main import command_line
from kafkasniff.cli.options.help_sections import EXAMPLES, sections

_ENVIRONMENT: Final = (
    ("NO_COLOR", "If it is set and not empty, --color auto means never."),
    ("TERM", "With the value dumb, likewise."),
)
_OPTION: Final = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")


def pages() -> dict[str, str]:
    """The pages as roff, by the names of their files."""
    context = click.Context(command_line, info_name="kafkasniff", **command_line.context_settings)
    commands = {name: command_line.get_command(context, name) for name in command_line.list_commands(context)}
    found = {"kafkasniff.1": _page("kafkasniff", _whole(context))}
    for name, command in commands.items():
        assert command is not None
        under = click.Context(command, info_name=name, parent=context)
        found[f"kafkasniff-{name}.1"] = _page(f"kafkasniff-{name}", _command(command, under))
    return found


def write(folder: Path) -> None:
    """Write the pages into `folder`, and remove those of commands that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    written = pages()
    for file in folder.glob("kafkasniff*.1"):
        if file.name not in written:
            file.unlink()
    for name, text in written.items():
        (folder / name).write_text(text, encoding="ascii")


def _page(name: str, lines: Iterable[str]) -> str:
    head = (
        '.\\" Generated from --help by python -m kafkasniff.cli.manual docs/man',
        f'.TH {_literal(name.upper())} 1 "" "kafkasniff" "User Commands"',
        # Names and options must be searchable: no hyphenation, no wide gaps.
        ".nh",
        ".ad l",
    )
    return "\n".join((*head, *lines)) + "\n"


def _whole(context: click.Context) -> Iterator[str]:
    yield ".SH NAME"
    yield "kafkasniff \\- wire\\-traffic inspector and packet decoder for Apache Kafka"
    yield ".SH SYNOPSIS"
    yield ".B kafkasniff"
    yield ".I COMMAND"
    yield "[\\fIOPTIONS\\fR] \\&..."
    yield ".SH DESCRIPTION"
    yield from _paragraphs(command_line.help or "")
    yield from _options(command_line, context)
    yield ".SH COMMANDS"
    yield _text("Each has a page of its own, such as kafkasniff-decode(1).")
    yield from _definitions(_summaries(command_line, context))
    yield ".SH EXIT STATUS"
    yield _text(EXIT_ORDER)
    yield from _definitions(EXIT_CODES)
    yield ".PP"
    yield _text("Data goes to standard output, everything else to standard error.")
    yield ".SH ENVIRONMENT"
    yield from _definitions(_ENVIRONMENT)
    yield from _examples("stats", "live", "decode", "diff", most=1)
    yield ".SH SEE ALSO"
    yield from (f".BR {_literal(f'kafkasniff-{name}')} (1)," for name in command_line.list_commands(context))
    yield ".BR tcpdump (8),"
    yield ".BR tshark (1)"


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield ".SH NAME"
    yield f"kafkasniff\\-{_literal(context.info_name or '')} \\- {_literal(command.get_short_help_str(limit=1000))}"
    yield ".SH SYNOPSIS"
    yield f".B {_literal(f'kafkasniff {context.info_name}')}"
    yield _literal(usage)
    yield ".SH DESCRIPTION"
    yield from _paragraphs(command.help or "")
    yield ".SH OPTIONS"
    for title, records in sections(command, context):
        if title != "Options":
            yield f".SS {_quoted(title)}"
        yield from _definitions(records)
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
        yield _text(f"kafkasniff {context.info_name} NAME --help shows the options of each.")
        yield from _definitions(_summaries(command, context))
    yield from _examples(context.info_name or "")
    yield ".SH SEE ALSO"
    yield ".BR kafkasniff (1)"
    yield _text("has the exit codes.")


def _examples(*commands: str, most: int | None = None) -> Iterator[str]:
    """The examples of commands; `most`: the first ones of each."""
    yield ".SH EXAMPLES"
    for example in (example for name in commands for example in EXAMPLES[name][:most]):
        line = _literal(f"kafkasniff {example.line}")
        yield from (".PP", _text(example.purpose), ".PP", ".RS 4", ".EX", line, ".EE", ".RE")


def _summaries(group: click.Group, context: click.Context) -> Iterator[tuple[str, str]]:
    for name in group.list_commands(context):
        under = group.get_command(context, name)
        assert under is not None
        yield name, under.get_short_help_str(limit=1000)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        # Arguments are described in the usage.
        if record is not None and isinstance(parameter, click.Option):
            yield from _definitions([record])


def _definitions(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, meaning in pairs:
        yield ".TP"
        yield f"\\fB{_literal(term)}\\fR"
        yield _text(meaning)


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs in Click's notation: lines after a line with only a backspace keep their breaks."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        lines = [line.strip() for line in paragraph.splitlines()]
        if lines[0] == "\b":
            yield ".EX"
            yield from map(_literal, lines[1:])
            yield ".EE"
        else:
            yield _text(" ".join(lines))


def _text(text: str) -> str:
    """Running text, options in bold."""
    text, escaped, end = " ".join(text.split()), "", 0
    for match in _OPTION.finditer(text):
        escaped += f"{_escaped(text[end : match.start()])}\\fB{_escaped(match[0])}\\fR"
        end = match.end()
    escaped += _escaped(text[end:])
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def _quoted(text: str) -> str:
    """A quoted macro argument."""
    return '"' + _literal(text).replace('"', "\\(dq") + '"'


def _literal(text: str) -> str:
    """A verbatim line."""
    escaped = _escaped(text)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def _escaped(text: str) -> str:
    """Escaped: no part of it is read as a roff command, and `-` and quotes can be copied and pasted."""
    for character, name in (
        ("\\", "\\e"),
        ("-", "\\-"),
        ("'", "\\(aq"),
        ("`", "\\(ga"),
        ("^", "\\(ha"),
        ("~", "\\(ti"),
    ):
        text = text.replace(character, name)
    # ASCII only, so that no formatter depends on the encoding.
    return "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
