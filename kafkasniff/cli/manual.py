"""The manual page, made of what `--help` says: `python -m kafkasniff.cli.manual > docs/kafkasniff.1`.

One page for all commands, in the macros of man(7).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import Final

import click

from kafkasniff.cli.main import command_line

__all__ = ["EXIT_CODES", "manual"]

EXIT_CODES: Final = (
    ("0", "All was read. Problems in streams do not change this, nor does a reader that closes the pipe."),
    ("1", "There are findings or differences, of commands that look for such."),
    ("2", "The command line makes no sense."),
    ("3", "A capture or an interface cannot be opened."),
    ("4", "A capture file is structurally broken or cut; what could be read was."),
    ("5", "The output cannot be written, or privileges, Java, Spark or memory are missing."),
    ("70", "An error in kafkasniff: one line, with -v its traceback."),
    ("129, 130, 143", "Interrupted by SIGHUP, SIGINT or SIGTERM. live that was stopped so: 0."),
)
"""`environment.Exit`, for people."""
_ENVIRONMENT: Final = (
    ("NO_COLOR", "If it is set and not empty, --color auto means never."),
    ("TERM", "With the value dumb, likewise."),
)
_EXAMPLES: Final = (
    ("What is in a capture, on one screen:", "kafkasniff stats capture.pcap"),
    ("Every message, as it happens, on a port:", "kafkasniff live -i eth0 tcp port 9092"),
    ("What took long:", "kafkasniff decode --slower-than 100ms capture.pcap"),
    ("What did the upgrade change?", "kafkasniff diff before.pcap after.pcap"),
)
_OPTION: Final = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")


def manual() -> str:
    """The page, as roff."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    context = click.Context(command_line, info_name="kafkasniff", **command_line.context_settings)
    yield '.\\" Made of what --help says: python -m kafkasniff.cli.manual'
    yield '.TH KAFKASNIFF 1 "" "kafkasniff" "User Commands"'
    # Names and options are to be found as they are: no hyphens in them, no wide gaps around them.
    yield from (".nh", ".ad l")
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
    for name in command_line.list_commands(context):
        command = command_line.get_command(context, name)
        assert command is not None
        yield from _command(command, click.Context(command, info_name=name, parent=context))
    yield ".SH EXIT STATUS"
    yield "The highest that applies:"
    yield from _definitions(EXIT_CODES)
    yield ".PP"
    yield _text("Data goes to standard output, everything else to standard error.")
    yield ".SH ENVIRONMENT"
    yield from _definitions(_ENVIRONMENT)
    yield ".SH EXAMPLES"
    for told, line in _EXAMPLES:
        yield from (".PP", _text(told), ".PP", ".RS 4", ".EX", _literal(line), ".EE", ".RE")
    yield ".SH SEE ALSO"
    yield ".BR tcpdump (8),"
    yield ".BR tshark (1)"


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".SS {_quoted(f'kafkasniff {context.info_name} {usage}')}"
    yield from _paragraphs(command.help or "")
    yield from _options(command, context)
    if isinstance(command, click.Group):
        yield ".PP"
        yield _text(f"kafkasniff {context.info_name} NAME --help tells the options of each:")
        for name in command.list_commands(context):
            under = command.get_command(context, name)
            assert under is not None
            yield from _definitions([(name, under.get_short_help_str(limit=1000))])


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        # What arguments are stands in the usage.
        if record is not None and isinstance(parameter, click.Option):
            yield from _definitions([record])


def _definitions(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, told in pairs:
        yield ".TP"
        yield f"\\fB{_literal(term)}\\fR"
        yield _text(told)


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs as Click has them: behind a line with a backspace alone lines stay as they are."""
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
    text, told, end = " ".join(text.split()), "", 0
    for found in _OPTION.finditer(text):
        told += f"{_escaped(text[end : found.start()])}\\fB{_escaped(found[0])}\\fR"
        end = found.end()
    told += _escaped(text[end:])
    return f"\\&{told}" if told.startswith(".") else told


def _quoted(text: str) -> str:
    """The argument of a macro."""
    return '"' + _literal(text).replace('"', "\\(dq") + '"'


def _literal(text: str) -> str:
    """A line as it is."""
    told = _escaped(text)
    return f"\\&{told}" if told.startswith(".") else told


def _escaped(text: str) -> str:
    """Nothing in it is taken for a command of roff, and `-` and quotes are those that can be pasted."""
    for character, name in (
        ("\\", "\\e"),
        ("-", "\\-"),
        ("'", "\\(aq"),
        ("`", "\\(ga"),
        ("^", "\\(ha"),
        ("~", "\\(ti"),
    ):
        text = text.replace(character, name)
    # So that no formatter has to be told the encoding.
    return "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in text)


if __name__ == "__main__":
    sys.stdout.write(manual())
