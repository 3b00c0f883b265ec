"""`Containerfile`: its steps, as far as they need neither root nor downloads; `python -m tests.image` runs all."""

from __future__ import annotations

import re
import tomllib
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


def test_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(
        r"EXTRAS=\[([^\]]+)\]", (ROOT / "Containerfile").read_text() + (ROOT / "docs/remote.md").read_text()
    )
    assert named
    assert {extra for names in named for extra in names.split(",")} <= project["optional-dependencies"].keys()


@pytest.mark.extended
def test_the_context_is_enough_to_build(tmp_path: Path) -> None:
    """A wheel of it has the same files, besides the kernel."""
    from hatchling.builders.wheel import WheelBuilder

    context = tmp_path / "src"
    copy_context(context)
    assert {path.name for path in context.iterdir()} == {
        *("LICENSE", "README.md", "dissectors", "docs", "hatch_build.py", "kafkasniff", "licenses"),
        *("pyproject.toml", "pyspark_kafkasniff.py"),
    }
    names = [
        {file.distribution_path for file in WheelBuilder(str(folder)).recurse_included_files()}
        for folder in (context, ROOT)
    ]
    assert len(names[0]) > 500
    assert names[0] == names[1], "the image has what an installation of the checkout has"
