"""The files for GitHub run what exists; `make lint` validates them by their schemas."""

from __future__ import annotations

import re

import yaml

from tests.conftest import ROOT

FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def test_the_workflow_runs_the_projects_own_commands() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    jobs = workflow["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert ".ci/run" in commands
    targets = {command.split()[1] for command in commands if command.startswith("make ")}
    makefile = (ROOT / "Makefile").read_text()
    assert targets == {".venv/.installed-dev", "release-check"}
    assert all(re.search(rf"^{re.escape(target)}:", makefile.replace("$(VENV)", ".venv"), re.M) for target in targets)
    assert ".venv/bin/python -m tests.image" in commands
    assert workflow["permissions"] == {"contents": "read"}
    assert {jobs[name]["needs"] for name in ("image", "wheels")} <= jobs.keys()


def test_the_command_that_a_form_recommends() -> None:
    text = next(path.read_text() for path in FORMS if path.stem == "wrong-output")
    assert "decode --write-matching small.pcapng --no-payload" in text
