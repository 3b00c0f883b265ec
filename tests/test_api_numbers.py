"""Knowledge about an API belongs in its definition: only modules with a reason refer to APIs by number or name."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from kafkasniff.kafka.apis.dissectors import api, api_keys, snake_case
from tests.conftest import ROOT

PACKAGE = ROOT / "kafkasniff"
SESSIONS = "fetch sessions are Fetch's (KIP-227)"
GREETING = "greeting and authentication are rules of the dialogue"
NEGOTIATION = "the versions in ApiVersions responses"
ALLOWED = {
    "kafka/apis/dissectors.py": "the numbers themselves",
    "kafka/messages/message.py": "ApiVersions refused in another version (KIP-511)",
    "kafka/messages/plausibility.py": f"zeros look like a Produce request; {GREETING}",
    "engine/stream_questions.py": GREETING,
    "engine/connection_stats.py": GREETING,
    "kafka/messages/message_plan.py": "readers of bytes whose form only code knows (group protocols, SASL, OTLP)",
    "enrich/sessions.py": SESSIONS,
    "enrich/enricher.py": SESSIONS,
    "tables/rows/exchanges.py": SESSIONS,
    "analysis/between_brokers.py": GREETING,
    "analysis/audit.py": NEGOTIATION,
    "tables/rows/connections.py": "authentication is these APIs",
    "analysis/questions/versions.py": NEGOTIATION,
    "cli/running/capture_usage.py": NEGOTIATION,
    "live/traffic.py": "lag is a question about commits and Fetch, answered during the capture",
    "otlp/spans.py": "OpenTelemetry's types of operations: send, receive, settle",
    "kafka/embedded/internal_topics.py": "no API: a type of records with the name of one",
    "capture/formats/broker_files.py": "a segment's batches become Fetch responses",
    "tls/record.py": "no API: a type of TLS records with the name of one",
}
"""Modules that know an API by its number, each with the reason. Anything else is an attribute of a definition."""
QUESTIONS = ("analysis", "detectors", "report")
"""Folders whose questions are about certain APIs, by name."""

NAMES = {api(key).name for key in api_keys()}
CONSTANTS = "|".join(sorted({form for name in NAMES for form in (name.upper(), snake_case(name).upper())}))
KEY = r"(?<!\w)(?:\w+\.)?(?:api_)?key\b"
NUMBERS = re.compile(
    rf"""from\ kafkasniff\.kafka\.apis\.dissectors\ import\ (?:\([^)]*|[^(\n]*)\b[A-Z]{{2}}[A-Z_]*\b
    | ^_?(?:{CONSTANTS})(?::\ \w+)?\ =\ \d
    | {KEY}\ (?:[=!]=|(?:not\ )?in)\ (?:[({{\[]?\d|_?(?:{CONSTANTS})\b)""",
    re.MULTILINE | re.VERBOSE,
)
"""An import of a number, its definition, and a comparison with a key."""
TABLES = re.compile(r"^(\w+)(?:: [^=\n]+)? = (?:\w+\()?[({\[\s]+\d+\b", re.MULTILINE)
"""A collection or a table that begins with a number."""


def numbers(source: str) -> bool:
    """Whether a module refers to an API by its number."""
    if NUMBERS.search(source):
        return True
    return any(
        re.search(rf"{KEY}(?:, \w+)?\)? (?:not )?in {table}\b|\b{table}(?:\[|\.get\()\(?{KEY}", source)
        for table in TABLES.findall(source)
    )


def names(source: str) -> set[str]:
    """Names of APIs in a module's strings."""
    if not any(name in source for name in NAMES):
        return set()
    return {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)} & NAMES


def places(find: Callable[[str], object]) -> set[str]:
    """Modules of the package in which something is found."""
    return {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if find(path.read_text())}


def test_numbers_of_apis_occur_only_with_a_reason() -> None:
    found = places(numbers)
    assert found - ALLOWED.keys() == set()
    assert ALLOWED.keys() - found == set(), "these need no exception any more"


def test_names_of_apis_occur_only_in_questions_about_them() -> None:
    assert {path for path in places(names) if path.split("/")[0] not in QUESTIONS} == set()
    assert names("if message.api == 'Produce': pass") == {"Produce"}
    assert names("'Produces a thing'") == set()
