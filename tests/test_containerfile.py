"""`Containerfile`: who runs what with which rights, and the names of extras. The workflow builds and runs the image."""

from __future__ import annotations

import re
import tomllib

from tests.conftest import ROOT

TEXT = (ROOT / "Containerfile").read_text()


def test_it_runs_as_an_ordinary_user_with_one_permitted_capability() -> None:
    build, final = (f"FROM {stage}" for stage in TEXT.split("\nFROM ")[1:])
    assert "\nUSER 10001:10001\n" in final
    # The entry point is exec'd: signals reach kafkasniff.
    assert '\nENTRYPOINT ["kafkasniff"]\n' in final
    assert re.findall(r"setcap (\S+) ", TEXT) == ["cap_net_raw=p"]
    # The last stage has neither the sources nor the tools of the build.
    assert re.findall(r"^COPY (.*)$", final, re.M) == ["--from=build /opt/kafkasniff /opt/kafkasniff"]
    assert len({stage.split()[1] for stage in (build, final)}) == 1


def test_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"EXTRAS=\[([^\]]+)\]", TEXT + (ROOT / "docs/remote.md").read_text())
    assert named
    assert {extra for names in named for extra in names.split(",")} <= project["optional-dependencies"].keys()
