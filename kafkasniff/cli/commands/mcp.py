"""`kafkasniff mcp`: answers for language models, over the Model Context Protocol."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import framing_options, topic_ids_option
from kafkasniff.cli.running.browsing import READING, words_of
from kafkasniff.cli.running.sources import divide_sources
from kafkasniff.errors import MissingExtraError, UsageError
from kafkasniff.runtime.addresses import name_of


@click.command("mcp", cls=SectionedCommand)
@click.argument("sources", nargs=-1, required=True, metavar="CAPTURE|DIR...")
@framing_options
@topic_ids_option
@click.option("--show-payload", is_flag=True, help="Show keys and values of records; without it, only their lengths.")
@click.option("--http", metavar="[HOST]:PORT", help="Serve over HTTP at /mcp instead of stdio; needs --token-file.")
@click.option("--token-file", metavar="FILE", help="Require the token in FILE (Authorization: Bearer).")
@click.pass_obj
def mcp_command(environment: Environment, /, sources: tuple[str, ...], **options: Any) -> int:
    """Answer questions of a language model about captures and exports, as an MCP server on stdio.

    The model can read only the named captures and exports, and change nothing. Secrets are never shown.
    """
    address, token_file = options.pop("http"), options.pop("token_file")
    payload: bool = options.pop("show_payload")
    if (address is None) != (token_file is None):
        raise UsageError("--http and --token-file must be given together")
    if "-" in sources:
        raise UsageError("mcp reads captures again for each question, so it cannot read stdin (-)")
    divided = divide_sources(environment, sources, filtered=False)
    if find_spec("mcp") is None:
        raise MissingExtraError("mcp", "mcp", "mcp")
    if divided.folders:
        from kafkasniff.analysis.export import Export

        shown = [name_of(folder) for folder in divided.folders if Export.open(folder).has_payload]
        if shown and not payload:
            raise UsageError(f"{shown[0]} may have keys and values: export with --no-payload, or give --show-payload")

    from kafkasniff.cli.running.mcp_server import make_server, serve_http, serve_stdio
    from kafkasniff.cli.running.scrapes import is_loopback, parse_address, read_token
    from kafkasniff.cli.running.tool_answers import ToolAnswers

    with ToolAnswers(sources, divided.folders, words_of(options, READING), payload=payload) as answers:
        server = make_server(answers)
        if address is None:
            serve_stdio(server)
            return Exit.OK
        host, port = parse_address(address, "--http")
        token = read_token(token_file, "--token-file")
        if not is_loopback(host):
            environment.say("warning: the token of --http is sent in clear text")
        serve_http(server, host, port, token, listening=lambda url: environment.say(f"MCP server at {url}"))
    return Exit.OK
