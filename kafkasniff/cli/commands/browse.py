"""`kafkasniff browse`: an explorer of captures in the terminal."""

from __future__ import annotations

from typing import Any

import click

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import reading_options, reads_twice
from kafkasniff.cli.options.record_options import registry_options
from kafkasniff.cli.running.browsing import check_screen, explore, piped_capture
from kafkasniff.cli.running.sources import take_captures
from kafkasniff.errors import UsageError
from kafkasniff.runtime.addresses import name_of
from kafkasniff.runtime.export_manifest import is_export


@click.command("browse", cls=SectionedCommand)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...|DIR|-")
@reading_options
@registry_options
@click.option("--serve", is_flag=True, help="Show it in browsers on this machine; the address is printed.")
@click.option("--serve-port", type=click.IntRange(1, 65535), metavar="PORT", help="Port [default: a free one].")
@click.pass_obj
def browse_command(environment: Environment, /, captures: tuple[str, ...], **options: Any) -> int:
    """Look around in captures or an export (folder): list exchanges, open bodies and bytes, filter.

    Needs a terminal; `?` shows the keys. Captures are read again when you open an exchange; stdin (-) is kept in a
    temporary file for that. `live --browse` does the same with an interface. Secrets are never shown.
    """
    serve, port = options.pop("serve"), options.pop("serve_port")
    if port is not None and not serve:
        raise UsageError("--serve-port needs --serve")
    port = port or 0 if serve else None
    if not serve:
        check_screen(environment)
    if captures == ("-",):
        if serve:
            raise UsageError("--serve cannot show stdin (-): write it to a file first")
        with piped_capture(environment) as growing:
            return explore(environment, (str(growing.path),), options, title="stdin", growing=growing, lasting=False)
    if "-" in captures:
        raise UsageError("browse shows stdin (-) alone, without other captures")
    exports = [capture for capture in captures if is_export(capture)]
    if exports:
        if len(captures) > 1:
            raise UsageError(f"browse shows an export alone: {name_of(exports[0])}")
        return explore(environment, (), options, title=name_of(exports[0]), export=exports[0], port=port)
    taken = take_captures(environment, captures)
    if not reads_twice(None, taken):
        raise UsageError("browse reads captures again, so it cannot read a named pipe: pass it as stdin (-)")
    return explore(environment, taken, options, title=", ".join(map(name_of, captures)), port=port)
