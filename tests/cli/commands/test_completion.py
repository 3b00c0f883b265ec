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


IN_SHELLS = {
    "bash --norc --noprofile": (
        """
eval "$(kafkasniff completion bash)"
complete -p kafkasniff
compopt() { echo compopt "$@"; }
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _kafkasniff_completion kafkasniff; }
ask kafkasniff decode --api Pro
echo "${COMPREPLY[@]}"
ask kafkasniff decode cap
""",
        ["complete -o nosort -F _kafkasniff_completion kafkasniff", "Produce", "compopt -o default"],
    ),
    # An autoloaded function that compinit finds by its name and first line.
    "zsh -f": (
        """
kafkasniff completion zsh > _kafkasniff
fpath=($PWD $fpath)
autoload -Uz compinit && compinit -D -u
print $_comps[kafkasniff]
_describe() { print -l -- ${completions_with_descriptions%%:*} }
words=(kafkasniff diff --min-ch) CURRENT=3
_kafkasniff
""",
        ["_kafkasniff", "--min-change"],
    ),
    "fish --no-config": (
        """
kafkasniff completion fish | source
touch capture.pcap
complete -C 'kafkasniff decode --api Pro' | string replace -r '\\t.*' ''
complete -C 'kafkasniff stats capt' | string replace -r '\\t.*' ''
""",
        ["Produce", "capture.pcap"],
    ),
}


@pytest.mark.extended
@pytest.mark.parametrize("shell", IN_SHELLS)
def test_shells(shell: str, require_tool: Callable[[str], str], tmp_path: Path) -> None:
    name, *options = shell.split()
    script, expected = IN_SHELLS[shell]
    program = tmp_path / "bin" / "kafkasniff"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kafkasniff "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": "."}
    done = subprocess.run(
        [require_tool(name), *options, "-c", script], env={**os.environ, **environment}, cwd=tmp_path,
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert (done.stderr, done.stdout.splitlines()) == ("", expected)
