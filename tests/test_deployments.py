"""Dashboard, alerts and Kubernetes: they name metrics, labels and options that exist."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import click
import pytest

from kafkasniff.cli.commands.live import live_command
from kafkasniff.live.metrics import Metrics
from tests.conftest import ROOT, ran

yaml = pytest.importorskip("yaml")
DOCS = ROOT / "docs"
DASHBOARD = json.loads((DOCS / "prometheus" / "grafana-dashboard.json").read_text())
ALERTS = yaml.safe_load((DOCS / "prometheus" / "alerts.yml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
TARGETS = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]
EXPRESSIONS = [one["expr"] for one in (*TARGETS, *RULES)]
SCRAPED = {"instance", "le"}
"""Labels that Prometheus adds, or that histograms have."""


def known() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for family in Metrics(1).collect():
        ends = {"counter": ("_total",), "histogram": ("_bucket",), "info": ("_info",)}.get(family.type, ("",))
        labels = {*getattr(family, "_labelnames", ())}
        found |= {family.name + end: labels for end in ends}
    return found


def test_every_metric_and_label_exists() -> None:
    metrics = known()
    variables = [one["query"] for one in DASHBOARD["templating"]["list"]]
    assert {name for one in (*EXPRESSIONS, *variables) for name in re.findall(r"kafkasniff_\w+", one)} <= {*metrics}
    for one in EXPRESSIONS:
        labels = set().union(*(metrics[name] for name in re.findall(r"kafkasniff_\w+", one)))
        used = {name.strip() for group in re.findall(r"by \((.*?)\)", one) for name in group.split(",")}
        used |= set(re.findall(r"(\w+)=~?\"", one))
        assert used <= labels | SCRAPED, one
        assert one.count("(") == one.count(")")
    for one in TARGETS:
        assert set(re.findall(r"{{(\w+)}}", one["legendFormat"])) <= set(re.findall(r"\w+", one["expr"])), one


def test_the_daemonset_has_only_the_right_to_capture() -> None:
    spec = yaml.safe_load((DOCS / "kubernetes" / "daemonset.yaml").read_text())["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_RAW"]}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert "privileged" not in container["securityContext"]
    assert not spec["automountServiceAccountToken"]
    command, *arguments = container["args"]
    assert command == "live"
    parsed = live_command.make_context("live", arguments).params
    assert parsed["metrics"].endswith(f":{container['ports'][0]['containerPort']}")
    assert Path(parsed["metrics_token_file"]).parent == Path(container["volumeMounts"][0]["mountPath"])


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["kafka-0", "-n", "data", "--", "--top"], ["--namespace=data", "debug", "kafka-0", "live", "--top"]),
        (["kafka-0"], ["debug", "kafka-0", "live"]),
        ([], None),
        (["a", "b"], None),
        (["--help"], None),
    ],
)
def test_the_plugin_debugs_a_pod(given: list[str], wanted: list[str] | None, tmp_path: Path) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    kubectl.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = ran([DOCS / "kubernetes" / "kubectl-kafkasniff", *given], env=environment)
    if wanted is None:
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("usage: kubectl kafkasniff POD")
        return
    words = done.stdout.splitlines()
    assert [word for word in words if word in wanted] == wanted
    assert "--profile=netadmin" in words
    run: Any = live_command.make_context("live", words[words.index("live") + 1 :])
    assert isinstance(run, click.Context)
