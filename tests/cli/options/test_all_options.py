"""One walk over all commands: names and meanings of options, their help by section, and reasons for missing ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import click

from kafkasniff.cli.main import command_line
from kafkasniff.cli.options.help_sections import SECTIONS, SectionedCommand, sections
from kafkasniff.cli.options.option_groups import FilterOptions

MUSCLE_MEMORY: Final = {
    **{"-C": "--rotate-size", "-D": "--list-interfaces", "-G": "--rotate-every", "-W": "--rotate-files"},
    **{"-Y": "--filter", "-c": "--count", "-e": "--fields", "-f": "--file", "-i": "--interface", "-o": "--output"},
    **{"-q": "--quiet", "-v": "--verbose", "-w": "--write", "-s": "--snaplen", "-x": "--hex"},
}
"""All short options, as in tcpdump and tshark (`-f` as in psql), each with the long one that it is in every command."""
OF_A_CAPTURE: Final = {("-w", "--write-matching")}
"""`decode` writes packets of what it reads, without secrets; `live` writes them as they are."""
DIFFERENT: Final = {
    ("live", "--top"),  # the view that is named after top(1), not a number of rows
    ("analyze talkers", "--top"),  # a parameter of the question: it counts alike, but is parsed by the question
    *(("decode-bytes", "--api"), ("decode-bytes", "--version"), ("", "--version")),
}

_NO_CAPTURE: Final = {"api", "completion", "decode-bytes", "help", "schemas", "wireshark"}
_FILTERS: Final = tuple(f"--{name.replace('_', '-')}" for name in FilterOptions._fields)
# Exchanges that a filter skips would be missing on the way of a record, and encrypted connections have none.
_NO_FILTER: Final = _NO_CAPTURE | {"follow", "tls", "mcp"}
_NO_LINES: Final = {"browse", "completion", "help", "mcp"}
# They write sentences, or lines one by one.
_NO_TABLE: Final = {"audit", "check", "security", "follow", "tls", "decode", "live", "decode-bytes"}
_OTHER_MEANINGS = {
    ("--topic", "analyze topic"),
    ("--topic", "analyze topics"),
    ("--topic", "follow"),
    ("--api", "decode-bytes"),
}
LACKS: Final[dict[str, set[str]]] = {
    **dict.fromkeys(_FILTERS, _NO_FILTER),
    **dict.fromkeys(("--port", "--max-frame", "--keylog", "--memory"), _NO_CAPTURE),
    "--definitions": {"completion", "help", "schemas"},
    # It shows no topics.
    "--topic-ids": _NO_CAPTURE | {"tls"},
    "--topic": _NO_CAPTURE | {"tls", "mcp"},
    "--api": _NO_FILTER - {"decode-bytes"},
    # Tables have addresses.
    "--hosts": _NO_CAPTURE | {"export", "sql", "browse", "mcp"},
    "--color": _NO_LINES | {"schemas", "wireshark", "export", "report"},
    "--format": _NO_LINES | {"schemas", "wireshark", "report"},
    "--output": _NO_LINES | {"api"},
    "--wide": _NO_LINES | _NO_TABLE | {"schemas", "wireshark", "export", "report"},
    # Some say nothing beside their output.
    "--quiet": _NO_LINES | {"schemas", "wireshark", "api", "decode-bytes"},
}
"""By option, the commands without it."""


def whole_program(width: int = 80) -> click.Context:
    # Click keeps the names of the help option with the command, so they have to be those of the program.
    return click.Context(command_line, info_name="kafkasniff", terminal_width=width, **command_line.context_settings)


def walk(command: click.Command = command_line, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands and questions; the program itself is ''."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for one in command.list_commands(context):
            found = command.get_command(context, one)
            assert found.name == one
            yield from walk(found, f"{name} {one}".strip())


COMMANDS: Final = dict(walk())
OPTIONS: Final = {
    name: [one for one in command.params if isinstance(one, click.Option)] for name, command in COMMANDS.items()
}


def helped(name: str, width: int) -> str:
    context = click.Context(COMMANDS[name], info_name=name, parent=whole_program(width), terminal_width=width)
    return COMMANDS[name].get_help(context)


def test_every_help_is_readable_in_80_columns() -> None:
    for name, command in COMMANDS.items():
        lines = helped(name, 80).splitlines()
        assert max(map(len, lines)) <= 80, name
        # A list of choices that takes the whole line would leave a narrow column for the description.
        assert all(re.match(r" {,34}\S", line) for line in lines if line.strip()), name
        text = " ".join(helped(name, 10_000).split())
        assert command.help, name
        for option in OPTIONS[name]:
            assert option.help, (name, option.name)
            assert option.opts[0] in text


def test_each_option_is_in_one_section_that_fits_a_screen() -> None:
    """A screen is 80×24, with its title, and a prompt below it."""
    names = [name for those in SECTIONS.values() for name in those]
    assert len(names) == len(set(names))
    assert set(names) <= {
        one for those in OPTIONS.values() for option in those for one in (*option.opts, *option.secondary_opts)
    }
    for name, command in COMMANDS.items():
        if not name:
            continue
        context = click.Context(command, parent=whole_program(), terminal_width=80)
        found = list(sections(command, context))
        shown = [record[0] for _, records in found for record in records]
        options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
        assert len(shown) == len(set(shown)) == len(options), name
        assert [record[0] for record in dict(found)["Options"]] == ["-h, --help"], name
        # Questions have parameters of their own.
        assert name.startswith("analyze ") or all(set(one.opts) & {*names, "--help"} for one in options), name
        for title, records in found:
            formatter = click.HelpFormatter(width=78)
            with formatter.section(title):
                formatter.write_dl(records)
            lines = formatter.getvalue().strip("\n").splitlines()
            assert len(lines) <= 23, (name, title)
            assert max(map(len, lines)) <= 80, (name, title)
        if not isinstance(command, click.Group):
            assert isinstance(command, SectionedCommand), name
            text = command.get_help(context)
            places = [text.index(f"\n{title}:") for title, _ in found]
            assert places == sorted(places), name


def test_short_options_mean_the_same_everywhere() -> None:
    every = [option.opts for those in OPTIONS.values() for option in those]
    found = {(short, long) for names in every for short in names for long in names if len(short) == 2 and len(long) > 2}
    assert found == {*MUSCLE_MEMORY.items(), *OF_A_CAPTURE}


def test_a_name_has_one_meaning() -> None:
    """What a user relies on: all names, whether it takes a value, and whether it may be repeated."""
    meanings: dict[str, dict[str, str]] = {}
    for command, those in OPTIONS.items():
        for one in those:
            meaning = (sorted(one.opts), one.is_flag, one.multiple, one.count, isinstance(one.type, click.IntRange))
            for name in one.opts:
                if name.startswith("--") and (command, name) not in DIFFERENT:
                    meanings.setdefault(name, {})[str(meaning)] = command
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}


def test_every_command_has_shared_options() -> None:
    """The topic of the question `topic`, the API of bytes and times of rows are not filters."""
    readers = [name for name in COMMANDS if name not in ("", "analyze")]
    for option, lacking in LACKS.items():
        has = {name: one for name in readers for one in OPTIONS[name] if option in one.opts}
        assert {*readers} - {*has} == lacking, option
        shared = {
            one.help
            for name, one in has.items()
            if not (option in ("--since", "--until") and name.startswith("analyze "))
            and (option, name) not in _OTHER_MEANINGS
        }
        # Some are quiet about a summary as well.
        assert option in ("--format", "--output") or len(shared) == (2 if option == "--quiet" else 1), shared
