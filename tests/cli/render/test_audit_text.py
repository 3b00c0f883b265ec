"""An audit as text and as JSON: outcomes, footnotes, and lists of bounded length."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kafkasniff.analysis.audit import Audit, AuditedClient, AuditFinding, BetweenBrokers
from kafkasniff.cli.render import audit_text
from kafkasniff.cli.render.audit_text import Audited, text


def finding(**values: Any) -> AuditFinding:
    fields: dict[str, Any] = {
        "api": "Produce", "api_key": 0, "api_versions": [2], "kind": "too-old", "certain": True, "target_min": 3,
        "target_max": 12, "requests": 1, "meaning": "it closes the connection", **values,
    }  # fmt: skip
    return AuditFinding(**fields)


def client(outcome: str = "served", *findings: AuditFinding, **values: Any) -> AuditedClient:
    fields: dict[str, Any] = {
        "client_id": "app", "client_ip": "10.0.0.5", "software_name": None, "software_version": None, "asks": True,
        "requests": 3, "first": None, "last": None, "falls_back": [], "notes": [], "needs": [], "upgrade": None,
        **values,
    }  # fmt: skip
    return AuditedClient(outcome=outcome, findings=list(findings), **fields)


def audited(
    *clients: AuditedClient, between: tuple[BetweenBrokers, ...] = (), rule: str | None = None, **new: Any
) -> Audited:
    return Audited("4.0", new.get("older"), Audit(list(clients), list(between), {}, rule), new.get("new"))


def lines(one: Audited, *, coloured: bool = False) -> list[str]:
    return text(one, coloured=coloured).splitlines()


def test_long_lists_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_text, "MAX_CLIENTS", 2)
    monkeypatch.setattr(audit_text, "MAX_ROWS", 1)
    found = lines(audited(*[client()] * 5, *[client("refused", finding(), finding(api="Fetch"))] * 3))
    assert "  … and 3 more (--format json has all)" in found
    assert "  … and 1 more (--format json has all)" in found
    assert found.count("  … +1") == 2


@pytest.mark.parametrize("coloured", [False, True])
@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_long_lines_are_wrapped_at_words(width: int, coloured: bool) -> None:
    """Nothing is lost but spaces, colours do not count, and lines that fit stay as they are."""
    notes = ["it sends ApiVersions, and will use lower versions if it supports them"]
    one = audited(
        client("refused", finding(), client_id="billing-service", software_name="java", notes=notes),
        client("served", client_ip="2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff", notes=notes),
        rule="Clients of Kafka 2.1 and newer are supported by Kafka 4.0 (KIP-896).",
    )
    whole, wrapped = (text(one, coloured=coloured, width=most) for most in (None, width))
    assert wrapped.split() == whole.split()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", wrapped).splitlines()
    assert all(len(line) <= width or len(line.split()) == 1 for line in plain)
    assert text(one, coloured=coloured, width=500) == whole


def test_nothing_new() -> None:
    one = Audited("4.0", "3.9", Audit([client()], [], {}, None), [])
    assert text(one, coloured=False).splitlines()[-1] == "Clients use everything that 4.0 adds to 3.9."
