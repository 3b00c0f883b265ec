"""`kafkasniff schemas`: copies of a schema registry, for work without network."""

from __future__ import annotations

from typing import Any

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand


@click.command("schemas", cls=SectionedCommand)
@click.argument("action", type=click.Choice(["fetch"]))
@click.option("--registry", required=True, metavar="URL", help="The registry; credentials as for `decode --registry`.")
@click.option("-o", "--output", required=True, metavar="DIR", help="Folder for the schemas; files in it are replaced.")
@click.pass_obj
def schemas_command(environment: Environment, /, **options: Any) -> int:
    """Copy all schemas of a registry into a folder, for `--registry DIR`."""
    from pathlib import Path

    from kafkasniff.values.registries import copy_registry, open_registry

    registry = open_registry(options["registry"], environment.environ)
    count = copy_registry(registry, Path(options["output"]))
    environment.say(f"{count:,} versions of schemas in {options['output']}")
    return Exit.OK
