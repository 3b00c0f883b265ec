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
    assert targets == {"check", "release-check"}
    assert all(re.search(rf"^{re.escape(target)}:", makefile.replace("$(VENV)", ".venv"), re.M) for target in targets)
    assert "docker build -t kafkasniff -f Containerfile ." in commands
    assert workflow["permissions"] == {"contents": "read"}
    needed = [name for job in jobs.values() for name in _names(job.get("needs", []))]
    assert needed
    assert set(needed) <= jobs.keys()


def _names(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def test_code_of_others_has_no_rights_and_no_action_or_image_can_be_replaced() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    for name, job in jobs.items():
        image = job.get("container", {}).get("image")
        assert image is None or re.fullmatch(r"[\w./:-]+@sha256:[0-9a-f]{64}", image), name
        if "options" in job.get("container", {}):
            before = [name, *_names(job.get("needs", []))]
            assert any(jobs[one].get("if") == "github.event_name != 'pull_request'" for one in before), name
            assert not job.get("if", "").startswith("${{"), "a skipped job that it needs skips it, too"
    actions = re.findall(r"uses: (.+)", text)
    assert actions
    assert [one for one in actions if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)] == []
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_the_command_that_a_form_recommends() -> None:
    text = next(path.read_text() for path in FORMS if path.stem == "wrong-output")
    assert "decode --write-matching small.pcapng --no-payload" in text
