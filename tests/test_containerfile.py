"""`Containerfile`: its steps, as far as they need neither root nor downloads; `python -m tests.image` runs all."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.image import arguments, copy_context, stages


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
    copy_context(tmp_path / "src")
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
