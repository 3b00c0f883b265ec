"""`Containerfile`: its steps, as far as they run without a container engine and without downloads."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.conftest import ROOT


def stages() -> list[list[tuple[str, str]]]:
    """(instruction, argument) of each stage."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(), flags=re.M))
    steps = [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]
    begins = [at for at, (name, _) in enumerate(steps) if name == "FROM"]
    return [steps[at:end] for at, end in zip(begins, [*begins[1:], len(steps)], strict=True)]


def arguments(stage: list[tuple[str, str]], instruction: str) -> list[str]:
    return [rest for name, rest in stage if name == instruction]


def ignored(path: str) -> bool:
    """Whether `.dockerignore` excludes a path: the last rule that matches it, or a folder that it is in, decides."""
    found = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        rule = line.removeprefix("!")
        if not line or line.startswith("#"):
            continue
        parts = path.split("/")
        prefixes = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        if any(fnmatch(prefix, rule) or (rule.startswith("**/") and rule[3:] in parts) for prefix in prefixes):
            found = not line.startswith("!")
    return found


def test_it_runs_as_an_ordinary_user_with_one_permitted_capability() -> None:
    build, final = stages()
    assert arguments(final, "USER") == ["10001:10001"]
    # The entry point is exec'd: signals reach kafkasniff.
    assert arguments(final, "ENTRYPOINT") == ['["kafkasniff"]']
    assert [re.findall(r"cap_\w+=\w+", step) for step in arguments(final, "RUN") if "setcap" in step] == [
        ["cap_net_raw=p"]
    ]
    # The last stage has neither the sources nor the tools of the build.
    assert arguments(final, "COPY") == ["--from=build /opt/kafkasniff /opt/kafkasniff"]
    assert len({line.removesuffix(" AS build") for stage in (build, final) for line in arguments(stage, "FROM")}) == 1


def test_every_shell_step_parses() -> None:
    for stage in stages():
        for step in arguments(stage, "RUN"):
            subprocess.run(["sh", "-n", "-c", step], check=True)


def test_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(
        r"EXTRAS=\[([^\]]+)\]", (ROOT / "Containerfile").read_text() + (ROOT / "docs/remote.md").read_text()
    )
    assert named
    assert {extra for names in named for extra in names.split(",")} <= project["optional-dependencies"].keys()


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """What an engine would send as the context of the build, of the files in the repository."""
    files = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in files:
        if not ignored(name) and (ROOT / name).is_file():
            (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "src" / name)
    return tmp_path / "src"


def test_the_context_is_enough_to_build(context: Path, tmp_path: Path) -> None:
    assert {path.name for path in context.iterdir()} == {
        *("LICENSE", "README.md", "dissectors", "docs", "hatch_build.py", "kafkasniff", "licenses"),
        *("pyproject.toml", "pyspark_kafkasniff.py"),
    }
    names = []
    for folder in (context, ROOT):
        output = tmp_path / f"wheel-{folder.name}"
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", output]
        environment = {**os.environ, "KAFKASNIFF_BUILD_PLATFORM": "none"}
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        with zipfile.ZipFile(next(output.iterdir())) as wheel:
            names.append(set(wheel.namelist()))
    assert names[0] == names[1], "the image has what an installation of the checkout has"


def test_what_is_removed_is_not_needed() -> None:
    """zstandard chooses its backend for CPython; NumPy does not import its tests."""
    (removal,) = (step for step in arguments(stages()[0], "RUN") if "numpy" in step)
    assert "rm" in shlex.split(removal)
    code = "import sys, numpy, zstandard; assert zstandard.backend == 'cext'; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "zstandard._cffi" not in loaded
    assert [name for name in loaded if name.startswith("numpy.") and ".tests" in name] == []
