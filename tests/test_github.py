"""The files for GitHub are well-formed, and run what exists."""

from __future__ import annotations

import re

import pytest
import yaml  # of moto, which tests need anyway

from tests.conftest import ROOT

FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def test_the_workflow_runs_the_projects_own_commands() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    jobs = workflow["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert ".ci/run" in commands
    targets = {command.split()[1] for command in commands if command.startswith("make ")}
    makefile = (ROOT / "Makefile").read_text()
    assert targets == {"release-check"}
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets)
    assert workflow["permissions"] == {"contents": "read"}
    assert set(jobs["wheels"]["needs"].split()) <= jobs.keys()


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms(path: object) -> None:
    form = yaml.safe_load(path.read_text())  # type: ignore[attr-defined]
    assert form.keys() >= {"name", "description", "body"}
    identities = [field["id"] for field in form["body"]]
    assert len(identities) == len(set(identities))
    for field in form["body"]:
        assert field["type"] in {"input", "textarea"}
        assert field["attributes"]["label"]
        required = field.get("validations", {}).get("required", False)
        assert isinstance(required, bool)


def test_the_command_that_a_form_recommends() -> None:
    text = next(path.read_text() for path in FORMS if path.stem == "wrong-output")
    assert "decode --write-matching small.pcapng --no-payload" in text


def test_the_citation() -> None:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert found["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "license"} <= found.keys()
