"""Options that commands share: each has one name and one meaning, and a command without one has a reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click
import pytest

from kafkasniff.analysis import question_names
from kafkasniff.cli.environment import Exit
from kafkasniff.cli.main import command_line
from kafkasniff.cli.options.filter_options import FilterOptions
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

SASL = ROOT / "captures" / "java-sasl.pcap"

_NO_CAPTURE = dict.fromkeys(("api", "completion", "decode-bytes", "help"), "it reads no capture")
_FILTERS = tuple(f"--{name.replace('_', '-')}" for name in FilterOptions._fields)
_ITS_SCREEN = {"browse": "it is a screen"}
_ITS_TEXT = {"completion": "it prints a script", "help": "it prints text"}
_NO_TABLE = dict.fromkeys(("audit", "check", "security"), "its text has no tables") | dict.fromkeys(
    ("decode", "live"), "its lines are written one by one"
)
LACKS: dict[str, dict[str, str]] = {
    **dict.fromkeys((*_FILTERS, "--port", "--max-frame", "--keylog", "--memory", "--topic-ids"), _NO_CAPTURE),
    # There it is the API of a response.
    "--api": {name: reason for name, reason in _NO_CAPTURE.items() if name != "decode-bytes"},
    "--hosts": {**_NO_CAPTURE, "export": "tables have addresses", "browse": "it is not made for it yet"},
    "--color": {
        **_ITS_SCREEN,
        **_ITS_TEXT,
        "export": "it writes tables",
        "report": "a page has its own colours",
    },
    "--format": {**_ITS_SCREEN, **_ITS_TEXT, "report": "a page is HTML"},
    "--output": {**_ITS_SCREEN, **_ITS_TEXT, "api": "its text is short"},
    "--wide": {
        **_ITS_SCREEN,
        **_ITS_TEXT,
        **_NO_TABLE,
        "decode-bytes": "its lines are written one by one",
        "export": "it writes tables",
        "report": "a page has room for all columns",
    },
    "--quiet": {
        **_ITS_SCREEN,
        **_ITS_TEXT,
        **dict.fromkeys(("api", "decode-bytes"), "it says nothing beside its output"),
    },
}
"""By option, the commands without it and why."""


def _options() -> dict[str, dict[str, click.Option]]:
    """Options by command, and by question of `analyze`."""
    context = click.Context(command_line, info_name="kafkasniff", **command_line.context_settings)
    commands: dict[str, click.Command | None] = {
        name: command_line.get_command(context, name) for name in command_line.list_commands(context)
    }
    asks = commands.pop("analyze")
    assert isinstance(asks, click.Group)
    commands |= {f"analyze {name}": asks.get_command(context, name) for name in question_names()}
    return {
        name: {one: option for option in command.params if isinstance(option, click.Option) for one in option.opts}
        for name, command in commands.items()
        if command is not None
    }


OPTIONS = _options()


@pytest.mark.parametrize("option", LACKS)
def test_every_command_has_it_or_a_reason(option: str) -> None:
    assert {name for name, has in OPTIONS.items() if option not in has} == set(LACKS[option])


@pytest.mark.parametrize("option", [one for one in LACKS if one not in ("--format", "--output")])
def test_it_means_the_same_everywhere(option: str) -> None:
    """The topic of the question `topic`, the API of bytes and times of rows are not filters."""
    meanings = {
        has[option].help
        for name, has in OPTIONS.items()
        if option in has
        and not (option in ("--since", "--until") and name.startswith("analyze "))
        and (option, name) not in {("--topic", "analyze topic"), ("--api", "decode-bytes")}
    }
    # Some have a summary as well.
    assert len(meanings) == (2 if option == "--quiet" else 1), meanings


COMMANDS = (
    *(("stats",), ("timing", "--by", "broker,address"), ("check",), ("security",), ("audit", "--target", "4.0")),
    *(("analyze", "talkers"), ("diff", "--all", ROOT / "captures" / "java-group-classic.pcap")),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one[0])
def test_names_of_addresses(command: tuple[str, ...], tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 the-machine\n")
    plain = kafkasniff(*command, "-q", SASL).text
    named = kafkasniff(*command, "-q", "--hosts", hosts, SASL).text
    assert "the-machine" not in plain
    assert "the-machine" in named
    as_json = (*command, "-q", "--format", "json", SASL)
    assert kafkasniff(*as_json, "--hosts", hosts).out == kafkasniff(*as_json).out
    hosts.write_text("nothing\n")
    assert kafkasniff(*command, "--hosts", hosts, SASL).code == Exit.USAGE


WITH_CLIENTS = [one for one in COMMANDS if one[0] not in ("check", "diff")]


@pytest.mark.parametrize("command", WITH_CLIENTS, ids=lambda one: one[0])
def test_filters(command: tuple[str, ...], tmp_path: Path) -> None:
    """Each sees the exchanges of the selected client alone, as an export with the same filter has them."""
    by = ("--by", "client") if command[0] == "timing" else ()
    text = kafkasniff(*command, *by, "-q", "--client-id", "scram-sha-512", SASL).text
    assert "scram-sha-512" in text
    assert "scram-sha-256" not in text
    assert kafkasniff(*command, "-q", "--filter", "nonsense", SASL).code == Exit.USAGE
    folder = tmp_path / "tables"
    assert kafkasniff("export", "-q", SASL, "-o", folder, "--client-id", "scram-sha-512").code == Exit.OK
    assert kafkasniff(*command, "-q", "--errors", folder).code == Exit.USAGE
    if command[0] in ("analyze", "audit"):
        assert kafkasniff(*command, "-q", folder).text == text


@pytest.mark.parametrize("command", [("audit", "--target", "4.0"), ("analyze", "record-sizes"), ("security",)])
def test_filters_on_topics_and_records(command: tuple[str, ...]) -> None:
    """Topics are only named by ids in requests of these versions, and records are read for the filter alone."""
    for expression in ('topic == "secured" and api == "Produce"', 'record.value contains "SCRAM"'):
        done = kafkasniff(*command, "-q", "-Y", expression, SASL)
        assert done.code in (Exit.OK, Exit.FINDINGS), done.err
        assert done.text, expression
    assert kafkasniff(*command, "-q", "-Y", 'topic == "none"', SASL).text.count("secured") == 0


@pytest.mark.parametrize(
    ("name", "expression", "apis"),
    [
        ("java-codecs", 'record.key startswith "key-"', {"Produce": 5, "Fetch": 1}),
        ("java-codecs", 'exists(record.header["trace"]) and partition == 0', {"Produce": 5, "Fetch": 1}),
        ("java-codecs", 'topic endswith "lz4" and api in ("Produce", "Fetch")', {"Produce": 1, "Fetch": 2}),
        ("java-connect", 'record.value.$.state == "UNASSIGNED"', {"Produce": 6, "Fetch": 10}),
        ("librdkafka-schemas", 'record.header["origin"] matches "^sh.p$"', {"Produce": 2, "Fetch": 1}),
        (
            "java-group-classic",
            'group contains "vents" and api matches "^Offset"',
            {"OffsetCommit": 2, "OffsetFetch": 4, "OffsetDelete": 1},
        ),
    ],
)
def test_every_command_selects_the_same_exchanges(
    name: str, expression: str, apis: dict[str, int], tmp_path: Path
) -> None:
    """Topics that requests name by id, records that were produced and those that were fetched."""
    capture = ROOT / "captures" / f"{name}.pcap"

    def objects(*command: object) -> list[dict[str, Any]]:
        return kafkasniff(*command, "-q", "--json", "-Y", expression, capture).objects

    requests = [one["api"] for one in objects("decode") if one["type"] == "request"]
    assert Counter(requests) == apis
    (overview,) = objects("stats")
    assert {one["api"]: one["exchanges"] for one in overview["apis"]} == apis
    (timing,) = objects("timing", "--by", "api")
    assert {one["keys"]["api"]: one["exchanges"] for one in timing["groups"]} == apis
    talkers = objects("analyze", "talkers")
    assert sum(one["requests"] for one in talkers) == sum(apis.values())
    folder = tmp_path / "tables"
    assert kafkasniff("export", "-q", "--records", "-Y", expression, capture, "-o", folder).code == Exit.OK
    (exported,) = kafkasniff("stats", "-q", "--json", folder).objects
    assert {one["api"]: one["exchanges"] for one in exported["apis"]} == apis
