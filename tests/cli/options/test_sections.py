"""Options in the help, by section."""

from __future__ import annotations

import click

from kafkasniff.cli.main import command_line
from kafkasniff.cli.options.sections import SECTIONS, SectionedCommand, sections
from tests.cli.commands.test_completion import commands


def _context(command: click.Command) -> click.Context:
    # Click keeps the names of the help option with the command, so they have to be those of the program.
    whole = click.Context(command_line, info_name="kafkasniff", **command_line.context_settings)
    return click.Context(command, parent=whole, terminal_width=80)


def test_each_option_is_in_one_section() -> None:
    names = [name for those in SECTIONS.values() for name in those]
    assert len(names) == len(set(names))
    for name, command in commands():
        shown = [record[0] for _, records in sections(command, _context(command)) for record in records]
        options = [one for one in command.get_params(_context(command)) if isinstance(one, click.Option)]
        assert len(shown) == len(set(shown)) == len(options), name
        others = dict(sections(command, _context(command)))["Options"]
        assert [record[0] for record in others] == ["-h, --help"], name
        if not name.startswith("analyze "):
            # Questions have parameters of their own.
            assert all(set(one.opts) & {*names, "--help"} for one in options), name


def test_a_section_fits_a_screen_of_80_by_24() -> None:
    """With its title, and a prompt below it."""
    for name, command in commands():
        for title, records in sections(command, _context(command)):
            formatter = click.HelpFormatter(width=78)
            with formatter.section(title):
                formatter.write_dl(records)
            lines = formatter.getvalue().strip("\n").splitlines()
            assert len(lines) <= 23, (name, title)
            assert max(map(len, lines)) <= 80, (name, title)


def test_sections_name_existing_options() -> None:
    existing = {
        name for _, command in commands() for one in command.params for name in (*one.opts, *one.secondary_opts)
    }
    assert {name for names in SECTIONS.values() for name in names} <= existing


def test_all_commands_have_sections_and_keep_the_order_of_options() -> None:
    for name, command in commands():
        if not isinstance(command, click.Group):
            assert isinstance(command, SectionedCommand), name
            text = command.get_help(_context(command))
            places = [text.index(f"\n{title}:") for title, _ in sections(command, _context(command))]
            assert places == sorted(places)
