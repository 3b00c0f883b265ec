"""Shell completion: what can follow, and that real shells receive it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete

from kafkasniff.analysis import question_names
from kafkasniff.analysis.comparison.answer import SECTIONS
from kafkasniff.cli.commands.completion import COMPLETED, SHELLS
from kafkasniff.cli.environment import COMPLETION
from kafkasniff.cli.main import command_line
from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.apis.releases import releases
from tests.cli.console import kafkasniff
from tests.cli.options.test_all_options import COMMANDS
from tests.conftest import ROOT

API_NAMES = [definition.name for key in api_keys() if (definition := api(key))]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", command_line.list_commands(click.Context(command_line))),
        ("deco", ["decode", "decode-bytes"]),
        ("analyze ", [*question_names()]),
        ("analyze re", ["record-sizes", "rebalances", "retries"]),
        ("diff --min", ["--min-change", "--min-count"]),
        ("diff --format j", ["json"]),
        ("diff --only ", [*SECTIONS]),
        ("completion ", [*SHELLS]),
        ("decode --api ", API_NAMES),
        ("decode --api prod", ["Produce"]),
        ("decode --api Produce,FetchS", ["Produce,FetchSnapshot"]),
        ("decode --api Produce,Produc", []),
        ("api AlterU", ["AlterUserScramCredentials"]),
        ("audit --target ", [*reversed(releases())]),
        ("stats --filter error_c", ["error_code", "error_count"]),
        ("export --tables records,c", ["records,connections"]),
        ("check --skip unanswered-r", ["unanswered-requests"]),
        ("live -i l", ["lo"]),
        *(
            (line, ["file"])
            for line in ("decode cap", "diff a.pcap b", "decode --keylog ", "analyze latency tables -o ")
        ),
        ("export -o ", ["dir"]),
    ],
)
def test_what_follows(line: str, found: list[str]) -> None:
    *arguments, last = line.split(" ")
    shell = BashComplete(command_line, {}, "kafkasniff", COMPLETION)
    items = shell.get_completions(arguments, last)
    assert sorted(one.value if one.type == "plain" else one.type for one in items) == sorted(found)
    assert arguments or all(one.help for one in items)


FREE_TEXT = (
    "ADDRESS[:PORT], BYTES, CMD, DETECTOR.FIELD=VALUE, DURATION, HEX|BASE64|-, ID, MIB, N, NAME, NAME=VALUE, "
    "NAME[:GROUP], PLACE, S, SIZE, TEXT, TIME, TOPIC[/key]=FILE, URL, X, [BPF FILTER], [HOST]:PORT, [SECTION]"
)
FREE = frozenset(FREE_TEXT.split(", "))
"""Metavars of text that only the user knows."""


def test_every_metavar_is_known() -> None:
    """A new one is either completed, or is free text."""
    assert COMPLETED.keys().isdisjoint(FREE)
    unknown = set()
    for name, command in COMMANDS.items():
        for parameter in command.params:
            text = isinstance(parameter.type, click.types.StringParamType)
            if text and parameter.metavar not in COMPLETED.keys() | FREE:
                unknown.add(f"{name} {parameter.name}: {parameter.metavar}")
    assert unknown == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_scripts_in_the_wheel(shell: str) -> None:
    file = f"docs/completion/kafkasniff.{shell}"
    assert (ROOT / file).read_text() == kafkasniff("completion", shell).text, "make manual"
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    folder, name = wheel["shared-data"][file].removeprefix("share/").rsplit("/", 1)
    assert (folder, name) in {
        ("bash-completion/completions", "kafkasniff"),
        ("zsh/site-functions", "_kafkasniff"),
        ("fish/vendor_completions.d", "kafkasniff.fish"),
    }


# -- in real shells --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which `kafkasniff` runs this checkout."""
    folder = tmp_path_factory.mktemp("bin")
    path = folder / "kafkasniff"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kafkasniff "$@"\n')
    path.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
    }


def said(shell: list[str], script: str, environment: dict[str, str], folder: Path) -> list[str]:
    done = subprocess.run(
        [*shell, "-c", script],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.extended
def test_bash(program: dict[str, str], require_tool: Callable[[str], str], tmp_path: Path) -> None:
    script = """
eval "$(kafkasniff completion bash)"
complete -p kafkasniff
compopt() { echo compopt "$@"; }
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _kafkasniff_completion kafkasniff; }
ask kafkasniff decode --api Pro
echo "${COMPREPLY[@]}"
ask kafkasniff decode cap
"""
    reported = said([require_tool("bash"), "--norc", "--noprofile"], script, program, tmp_path)
    assert reported == ["complete -o nosort -F _kafkasniff_completion kafkasniff", "Produce", "compopt -o default"]


@pytest.mark.extended
def test_zsh_finds_an_installed_script(
    program: dict[str, str], require_tool: Callable[[str], str], tmp_path: Path
) -> None:
    """It is an autoloaded function that compinit finds by its name and first line."""
    (tmp_path / "_kafkasniff").write_text((ROOT / "docs" / "completion" / "kafkasniff.zsh").read_text())
    script = f"""
fpath=({tmp_path} $fpath)
autoload -Uz compinit && compinit -D -u
print $_comps[kafkasniff]
_describe() {{ print -l -- $completions_with_descriptions }}
words=(kafkasniff diff --min-ch) CURRENT=3
_kafkasniff
"""
    found = said([require_tool("zsh"), "-f"], script, program, tmp_path)
    assert found[0] == "_kafkasniff"
    assert found[1].startswith("--min-change:Report numbers")


@pytest.mark.extended
def test_fish(program: dict[str, str], require_tool: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "capture.pcap").touch()
    script = """
kafkasniff completion fish | source
complete -C 'kafkasniff decode --api Pro'
complete -C 'kafkasniff stats capt'
"""
    reported = said([require_tool("fish"), "--no-config"], script, program, tmp_path)
    assert [line.partition("\t")[0] for line in reported] == ["Produce", "capture.pcap"]
