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
from click.shell_completion import BashComplete, CompletionItem

from kafkasniff.analysis import question_names
from kafkasniff.analysis.comparison.answer import SECTIONS
from kafkasniff.cli.commands.completion import COMPLETED, SHELLS
from kafkasniff.cli.environment import COMPLETION
from kafkasniff.cli.main import command_line
from kafkasniff.kafka.apis.dissectors import api_keys
from kafkasniff.kafka.apis.releases import releases
from tests.cli.console import kafkasniff
from tests.cli.options.test_all_options import COMMANDS
from tests.conftest import ROOT


def items(*arguments: str) -> list[CompletionItem]:
    """Candidates for the last argument."""
    shell = BashComplete(command_line, {}, "kafkasniff", COMPLETION)
    return shell.get_completions(list(arguments[:-1]), arguments[-1])


def follows(*arguments: str) -> list[str]:
    return [item.value for item in items(*arguments)]


def test_commands_with_their_descriptions() -> None:
    listed = command_line.list_commands(click.Context(command_line))
    assert follows("") == listed
    assert follows("deco") == ["decode", "decode-bytes"]
    assert all(item.help for item in items(""))
    assert follows("analyze", "") == list(question_names())
    assert follows("analyze", "re") == ["record-sizes", "rebalances", "retries"]


def test_options() -> None:
    assert follows("diff", "--min") == ["--min-change", "--min-count"]
    assert follows("diff", "--format", "j") == ["json"]
    assert follows("completion", "") == list(SHELLS)


def test_values() -> None:
    assert len(follows("decode", "--api", "")) == len(api_keys())
    assert follows("decode", "--api", "prod") == ["Produce"]
    assert follows("decode", "--api", "Produce,FetchS") == ["Produce,FetchSnapshot"]
    assert "Produce,Produce" not in follows("decode", "--api", "Produce,")
    assert follows("api", "AlterU") == ["AlterUserScramCredentials"]
    assert follows("audit", "--target", "")[0] == releases()[-1]
    assert follows("stats", "--filter", "error_c") == ["error_code", "error_count"]
    assert follows("export", "--tables", "records,c") == ["records,connections"]
    assert tuple(follows("diff", "--only", "")) == SECTIONS
    assert follows("check", "--skip", "unanswered-r") == ["unanswered-requests"]
    assert "lo" in follows("live", "-i", "")


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["decode", "cap"], "file"),
        (["diff", "a.pcap", "b"], "file"),
        (["decode", "--keylog", ""], "file"),
        (["export", "-o", ""], "dir"),
        (["analyze", "latency", "ta"], "file"),
        (["analyze", "latency", "tables", "-o", ""], "file"),
    ],
)
def test_files_and_folders(arguments: list[str], kind: str) -> None:
    assert [(item.type, item.value) for item in items(*arguments)] == [(kind, arguments[-1])]


FREE_TEXT = (
    "ADDRESS[:PORT], BYTES, DETECTOR.FIELD=VALUE, DURATION, HEX|BASE64|-, ID, MIB, N, NAME, NAME=VALUE, "
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
