"""The documents are correct: commands and examples run, links resolve, lists match the code."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkasniff.text.problem_kinds import PROBLEM_KINDS
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT, ran

DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "docs/reference/*.md", "dissectors/*.md", "captures/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
)
RUN_IN = [path for path in DOCUMENTS if path.parent in (ROOT, ROOT / "docs")]
BLOCK = re.compile(r"(?:<!-- not run: (?P<reason>[^>]+?) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
INSTALLED = os.environ.get("KAFKASNIFF_INSTALLED")
"""The `bin` of an environment with the wheel: commands run there, as a reader runs them (`.ci/check_wheel`)."""
WIDTH = 160
"""Columns of the terminal that commands write for."""
KIND = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")


class Block(NamedTuple):
    """A fenced block: its place, language and text, and the reason if it is not run."""

    place: str
    language: str
    text: str
    reason: str | None


def blocks(path: Path) -> list[Block]:
    content = path.read_text()
    return [
        Block(
            f"{path.relative_to(ROOT)}:{content.count(chr(10), 0, one.start('text'))}",
            *one.group("language", "text", "reason"),
        )
        for one in BLOCK.finditer(content)
    ]


ALL_BLOCKS = [block for path in RUN_IN for block in blocks(path)]
"""All code; by default all of the README runs, and some of the other pages."""


def of(language: str) -> list[pytest.param]:
    found = [block for block in ALL_BLOCKS if block.language == language]
    first, others = (
        [block for block in found if block.place.startswith("README.md") is is_first] for is_first in (True, False)
    )
    return [pytest.param(block, id=block.place) for block in (*first, *one_in(5, others))]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with only a link to the captures, so that output of commands stays there."""
    (tmp_path / "captures").symlink_to(ROOT / "captures")
    return tmp_path


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    found = {"PATH": f"{INSTALLED or Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    if INSTALLED is None:
        found["PYTHONPATH"] = str(ROOT)
    environment = {**os.environ, **found, "NO_COLOR": "1", "COLUMNS": str(WIDTH)}
    return ran(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, timeout=120)


def plain_arguments(command: str) -> list[str] | None:
    """The arguments of a command that is only kafkasniff and needs no shell."""
    if not command.startswith("kafkasniff ") or re.search(r"[$*?`~#{\\]", re.sub("'[^']*'", "", command)):
        return None
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    found = list(words)[1:]
    return None if any(set(word) <= set("();<>|&") for word in found) else found


TELLS_ITS_CODE = ' || echo "exit code $?"'
"""What a shell prints after a command that fails on purpose."""


def run_command(command: str, folder: Path) -> tuple[int, str]:
    """Exit code, and output followed by errors. In this process if there is no need for a shell: that saves time."""
    plain = command.removesuffix(TELLS_ITS_CODE)
    if plain != command:
        code, printed = run_command(plain, folder)
        return 0, f"{printed}exit code {code}\n" if code else printed
    arguments = plain_arguments(command)
    if arguments is None or INSTALLED is not None:
        done = run(["bash", "-o", "pipefail", "-c", command], folder)
        return done.returncode, done.stdout + done.stderr
    with contextlib.chdir(folder):
        result = kafkasniff(*arguments, environ={"NO_COLOR": "1"}, width=WIDTH)
    return result.code, result.text + result.err


def commands(block: Block) -> list[tuple[str, list[str]]]:
    """The block's commands, each with its lines of output."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
        else:
            pytest.fail(f"{block.place}: a line of output before the first command")
    return found


@pytest.mark.parametrize("block", of("console"))
def test_commands_run_and_print_the_output_shown(block: Block, elsewhere: Path) -> None:
    if block.reason is not None:
        assert len(block.reason) > 5, f"{block.place}: say why it is not run"
        return
    for command, shown in commands(block):
        if command.startswith("make "):
            # Running the tests from the tests would never end; `.ci/run` runs both, and here the targets must exist.
            target = command.split()[1]
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), command
            continue
        code, printed = run_command(command, elsewhere)
        assert code == 0, f"{command}: exit code {code}\n{printed}"
        line = not_printed(shown, [line.rstrip() for line in printed.splitlines()])
        assert line is None, f"{block.place}: {command}: does not print {line!r} there:\n{printed}"


def not_printed(shown: list[str], printed: list[str]) -> str | None:
    """The first line of the first part of `shown` that is not printed whole and in this order. `…` separates parts.

    Without `…` before or after it, a part is where the output begins or ends. A command without lines prints anything.
    """
    text = "\n".join(line.rstrip() for line in shown).rstrip("\n")
    if not text:
        return None
    parts = [part.strip("\n").split("\n") for part in f"\n{text}\n".split("\n…\n")]
    at = 0
    for number, part in enumerate(parts):
        if part == [""]:
            continue
        places = [place for place in range(at, len(printed)) if printed[place : place + len(part)] == part]
        if number == 0:
            places = [place for place in places if place == 0]
        if number == len(parts) - 1:
            places = [place for place in places if place + len(part) == len(printed)]
        if not places:
            return part[0]
        at = places[0] + len(part)
    return None


@pytest.mark.parametrize("block", of("python"))
def test_examples_run(block: Block, elsewhere: Path) -> None:
    done = run(["python", "-c", block.text], elsewhere)
    assert done.returncode == 0, f"{block.place}:\n{done.stderr}"
    assert done.stdout, f"{block.place} prints nothing"


def test_every_command_of_the_readme_shows_output() -> None:
    """Except for the page of `report`, of which the README has a picture."""
    run_here = [
        one
        for block in blocks(ROOT / "README.md")
        if block.language == "console" and block.reason is None
        for one in commands(block)
        if not one[0].startswith("make ")
    ]
    assert len(run_here) > 10
    assert [command for command, lines in run_here if not any(line != "…" for line in lines)] == [
        "kafkasniff report captures/java-group-classic.pcap -o report.html"
    ]


def test_links_resolve() -> None:
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text()):
            assert "://" in target or (path.parent / target).exists(), f"{path.name}: {target}"


def called_name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def literals(node: ast.expr) -> set[str]:
    """Kebab-case words that an expression can evaluate to: a literal, or either side of a conditional."""
    if isinstance(node, ast.IfExp):
        return literals(node.body) | literals(node.orelse)
    return {node.value} if isinstance(node, ast.Constant) and KIND.fullmatch(str(node.value)) else set()


def kinds_in(tree: ast.AST) -> set[str]:
    """Kinds that a module uses: kebab-case words among the arguments of calls named `…problem…` or `…fail…`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if re.search("problem|fail|kind", called_name(node).lower()):
            for argument in node.args:
                found |= literals(argument)
        for keyword in node.keywords:
            if keyword.arg in ("kind", "failure"):
                found |= literals(keyword.value)
    return found


def test_problem_kinds_are_described() -> None:
    given: dict[str, str] = {}
    words: set[str] = set()
    for path in sorted((ROOT / "kafkasniff").rglob("*.py")):
        if path.name == "problem_kinds.py":
            continue
        source = path.read_text()
        if not re.search(f'"{KIND.pattern}"', source):
            continue
        tree = ast.parse(source)
        given.update(dict.fromkeys(kinds_in(tree), path.name))
        words |= {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
    described = [kind for kinds in PROBLEM_KINDS.values() for kind in kinds]
    assert sorted(described) == sorted(set(described)), "each kind once"
    assert {kind: module for kind, module in given.items() if kind not in described} == {}, "given, not described"
    assert set(described) - words == set(), "described, not given"


def test_the_supported_pythons_match() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    assert f"Python {oldest} or newer" in (ROOT / "README.md").read_text()
    assert f"Python {oldest} or newer" in (ROOT / "Makefile").read_text()
    assert f"Programming Language :: Python :: {oldest}" in project["classifiers"]
