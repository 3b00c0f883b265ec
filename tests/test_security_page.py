"""SECURITY.md lists every bound that input meets, with the values of the code."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "SECURITY.md").read_text()
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
LISTED = dict(re.findall(r"^\| `([\w.]+\.[A-Z_]+)` \| (.*?) \|", PAGE, re.M))
MEET_INPUT = ("capture", "tcp", "tls", "kafka", "enrich")

NO_MATTER_OF_MEMORY = {
    "capture.link.decode.MAX_DROPS_REPORTED": "length of the output",
    "capture.live.dropping.MAX_ID": "an argument",
    "capture.link.fragments.MAX_DATAGRAM": "IP's own limit",
    "capture.live.interface_socket.MAX_BUFFER": "an argument",
    "capture.live.interfaces.MAX_ADDRESSES": "of the system, not of the input",
    "capture.live.libpcap_capture.MAX_BUFFER": "an argument",
    "enrich.catalog.MAX_NAME": "Kafka's own limit",
    "enrich.catalog.MAX_PAIRS": "a cache",
    "enrich.enricher.MAX_KINDS": "a cache by kind of message",
    "enrich.enricher.MAX_UNKNOWN": "of runs that only learn names",
    "enrich.hosts.MAX_HOSTS_BYTES": "of a file, which the user names",
    "enrich.hosts.MAX_NAME": "of a file, which the user names",
    "enrich.hosts.MAX_NETWORKS": "of a file, which the user names",
    "enrich.sessions.MAX_PENDING": "a part of the outstanding requests",
    "kafka.schema.definition.MAX_DEPTH": "of definitions, which are no input",
    "kafka.connection.recognition.MAX_AGAIN": "work: bytes that are kept anyway are searched again",
    "kafka.embedded.sasl_messages.MAX_ERROR": "length of the output",
    "kafka.record_facts.schema_registry.MAX_ID": "what is plausible",
    "kafka.record_facts.schema_registry.MAX_SCHEMAS": "what is plausible",
    "kafka.connection.opening.MAX_APIS": "of one connection's first answer",
    "kafka.connection.opening.MAX_NAMED": "length of the output",
    "kafka.connection.opening.MAX_NAMES": "length of the output",
    "kafka.connection.opening.MAX_REFUSAL_NS": "what is plausible",
    "kafka.connection.opening.MAX_SIZE": "what is plausible",
    "kafka.connection.opening.MAX_WAIT_NS": "what is plausible",
    "kafka.messages.plausibility.MAX_KEY": "what is plausible",
    "kafka.messages.plausibility.MAX_ODDITY": "what is plausible",
    "kafka.messages.plausibility.MAX_VERSION": "what is plausible",
    "kafka.connection.proxy.MAX_PROLOGUE": "PROXY's own limit",
    "kafka.connection.search.MAX_ANSWER": "work: bytes that are kept anyway",
    "kafka.connection.search.MAX_FORM": "what is plausible",
    "kafka.connection.search.MAX_ODD": "work: bytes that are kept anyway",
    "kafka.connection.search.MAX_RISE": "what is plausible",
    "tls.half.MAX_SKIPPED": "work, which TRIAL_BYTES bounds",
    "tls.handshake.MAX_ALPN": "length of the output",
    "tls.keylog.MAX_FLAWS": "length of the output",
    "tls.keylog.MAX_LINE": "of a key log, which the user names",
    "tls.negotiation.MAX_FOREIGN": "what is plausible",
    "tls.record.MAX_FRAGMENT": "TLS's own limit",
    "tls.session.MAX_FLIGHT": "a part of MAX_WAITING",
    "tls.session.MAX_PROBLEMS": "length of the output",
    "tls.descriptions.MAX_NAMES": "length of the output",
    "tls.descriptions.MAX_SUBJECT": "length of the output",
}
"""Constants with such a name that are no bounds on what input takes, and why."""


def constants() -> set[str]:
    """All public `MAX_…` of the packages that process input, by module."""
    found = set()
    for folder in MEET_INPUT:
        for path in (ROOT / "kafkasniff" / folder).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT / "kafkasniff").with_suffix("").parts)
            for node in ast.parse(path.read_text()).body:
                target = node.target if isinstance(node, ast.AnnAssign) else None
                if isinstance(target, ast.Name) and target.id.startswith("MAX_"):
                    found.add(f"{module}.{target.id}")
    return found


@pytest.mark.parametrize("name", LISTED)
def test_bounds_match_the_code(name: str) -> None:
    module, _, constant = name.rpartition(".")
    value = getattr(importlib.import_module(f"kafkasniff.{module}"), constant)
    found = re.match(r"([\d,]+)(?: (KiB|MiB|GiB))?\b", LISTED[name])
    assert found is not None
    assert int(found[1].replace(",", "")) * UNITS.get(found[2], 1) == value


def test_all_bounds_are_listed() -> None:
    assert len(LISTED) > 60
    assert constants() - LISTED.keys() - NO_MATTER_OF_MEMORY.keys() == set()
    assert NO_MATTER_OF_MEMORY.keys() - constants() == set(), "no longer in the code"
    assert NO_MATTER_OF_MEMORY.keys() & LISTED.keys() == set()


def test_kinds_of_problems_exist() -> None:
    kinds = re.findall(r"^\| `([a-z0-9-]+)` \|", (ROOT / "docs" / "problems.md").read_text(), re.M)
    rows = re.findall(r"^\| `[\w.]+\.[A-Z_]+` \|.*?\|(.*)\|$", PAGE, re.M)
    named = {kind for row in rows for kind in re.findall(r"`([a-z0-9-]+)`", row)}
    assert named - {"unanswered"} - set(kinds) == set()
    assert "memory-bound" in named


def test_it_is_linked_and_shipped() -> None:
    assert "(SECURITY.md)" in (ROOT / "README.md").read_text()
    assert "(SECURITY.md)" in (ROOT / "CONTRIBUTING.md").read_text()
    assert '"/SECURITY.md",' in (ROOT / "pyproject.toml").read_text()
    for target in re.findall(r"\]\(((?:docs|tests)/[^)#]+)", PAGE):
        assert (ROOT / target).is_file(), target
