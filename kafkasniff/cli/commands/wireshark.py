"""`kafkasniff wireshark`: what lets Wireshark decode Kafka in all versions, and capture only Kafka."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.shared_options import definitions_option
from kafkasniff.errors import OutputError


@click.command("wireshark", cls=SectionedCommand)
@click.option("-o", "--output", required=True, metavar="DIR", help="Folder; the files in it are replaced.")
@definitions_option
@click.pass_obj
def wireshark_command(environment: Environment, /, output: str) -> int:
    """Write a Lua dissector and an extcap interface for Wireshark.

    DIR/plugins/kafkasniff.lua decodes all APIs and versions that kafkasniff knows. DIR/extcap/kafkasniff captures the
    packets of Kafka's connections on any port. Wireshark reads both folders in ~/.local/lib/wireshark.
    """
    import kafkasniff
    from kafkasniff.browse.commands import program
    from kafkasniff.cli.wireshark.lua_dissector import extcap_script, lua_dissector

    texts = {
        "plugins/kafkasniff.lua": (lua_dissector(), 0o644),
        "extcap/kafkasniff": (extcap_script(shlex.join(program(["kafkasniff"])), kafkasniff.__version__), 0o755),
    }
    for name, (text, mode) in texts.items():
        path = Path(output) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(mode)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
        environment.say(f"wrote {path}")
    return Exit.OK
