"""Knowledge about an API belongs in its definition: only modules with a reason refer to APIs by number or name."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

import pytest

from kafkasniff.kafka.apis.dissectors import api, api_keys, snake_case
from tests.conftest import ROOT

PACKAGE = ROOT / "kafkasniff"
SESSIONS = "fetch sessions are Fetch's (KIP-227)"
GREETING = "greeting and authentication are rules of the dialogue"
NEGOTIATION = "the versions in ApiVersions responses"
ALLOWED = {
    "kafka/apis/named_apis.py": "the numbers themselves",
    "kafka/messages/message.py": "acks 0 of Produce; ApiVersions refused in another version (KIP-511)",
    "engine/in_step_messages.py": "acks 0 of Produce",
    "kafka/connection/detail.py": "acks 0 of Produce: its body is read where bodies are not wanted",
    "kafka/messages/plausibility.py": "zeros look like a Produce request",
    "kafka/connection/search.py": GREETING,
    "kafka/connection/dialogue.py": GREETING,
    "kafka/connection/opening.py": GREETING,
    "engine/connection_stats.py": GREETING,
    "kafka/embedded/interpreters.py": "readers of bytes whose form only code knows (group protocols, SASL, OTLP)",
    "enrich/sessions.py": SESSIONS,
    "enrich/enricher.py": SESSIONS,
    "tables/rows/exchanges.py": SESSIONS,
    "analysis/between_brokers.py": GREETING,
    "analysis/audit.py": NEGOTIATION,
    "analysis/offers.py": NEGOTIATION,
    "analysis/security/logins.py": "authentication is these APIs",
    "analysis/questions/versions.py": NEGOTIATION,
    "cli/running/capture_usage.py": NEGOTIATION,
    "live/lag.py": "lag is a question about commits and Fetch, answered during the capture",
    "otlp/spans.py": "OpenTelemetry's types of operations: send, receive, settle",
    "analysis/detectors/broker_versions.py": "a listener that does not offer Produce is one of controllers",
    "kafka/embedded/internal_topics.py": "no API: a type of records with the name of one",
    "tls/record.py": "no API: a type of TLS records with the name of one",
}
"""Modules that know an API by its number, each with the reason. Anything else is an attribute of a definition."""
QUESTIONS = ("analysis", "detectors", "report")
"""Folders whose questions are about certain APIs, by name."""

NAMES = {api(key).name for key in api_keys()}
CONSTANTS = {form for name in NAMES for form in (name.upper(), snake_case(name).upper())}
KEYS = {"api_key", "key"}
PHRASES = {"REQUESTS", "RESPONSES"}
"""Tables of phrases by API, which are put together elsewhere."""
TABLES = CONSTANTS | PHRASES
WORDS = TABLES | KEYS | {"named_apis"}
"""A module without any of these words refers to no API by its number."""
LOOKED_AT = (ast.Compare, ast.Subscript, ast.Call, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Constant)


def _name(node: ast.AST | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_key(node: ast.AST) -> bool:
    """The key of an API, or a tuple with one."""
    return any(_name(one) in KEYS for one in (node.elts if isinstance(node, ast.Tuple) else [node]))


def _has_numbers(node: ast.AST | None) -> bool:
    """A number, or something that begins with one: a tuple, a collection or a table, also within a call."""
    match node:
        case ast.Call(args=[first, *_]) | ast.Tuple(elts=[first, *_]) | ast.List(elts=[first, *_]):
            return _has_numbers(first)
        case ast.Set(elts=[first, *_]) | ast.Dict(keys=[first, *_]):
            return _has_numbers(first)
    return isinstance(node, ast.Constant) and type(node.value) is int


def _assigned(node: ast.AST) -> tuple[str, ast.expr | None]:
    """Name and value of an assignment; without a name for other statements."""
    if isinstance(node, ast.Assign):
        return _name(node.targets[0]), node.value
    return (_name(node.target), node.value) if isinstance(node, ast.AnnAssign) else ("", None)


@functools.cache
def nodes(source: str) -> list[ast.AST]:
    """The nodes of a module that are checked here."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, LOOKED_AT)]


def api_numbers(source: str) -> Iterator[str]:
    """Places where a module refers to an API by its number."""
    if not any(word.strip("_") in WORDS for word in set(re.findall(r"\w+", source))):
        return
    tables = {name for node in nodes(source) for name, value in [_assigned(node)] if name and _has_numbers(value)}

    def names_apis(node: ast.AST) -> bool:
        return _has_numbers(node) or _name(node) in tables or _name(node).strip("_") in CONSTANTS

    for node in nodes(source):
        name, value = _assigned(node)
        match node:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn()], comparators=[right]):
                found = (_is_key(left) and names_apis(right)) or (_is_key(right) and names_apis(left))
            case (
                ast.Subscript(value=table, slice=place)
                | ast.Call(func=ast.Attribute(value=table, attr="get"), args=[place, *_])
            ):
                found = _is_key(place) and _name(table) in tables
            case ast.ImportFrom(module="kafkasniff.kafka.apis.named_apis"):
                found = True
            case ast.ImportFrom(names=names):
                found = any(one.name.strip("_") in CONSTANTS for one in names)
            case _:
                found = name.strip("_") in TABLES and _has_numbers(value)
        if found:
            yield f"{node.lineno}: {ast.unparse(node)[:100]}"  # type: ignore[attr-defined]


def api_names(source: str) -> Iterator[str]:
    """Names of APIs in a module's code."""
    if not any(word in NAMES for word in set(re.findall(r"\w+", source))):
        return
    for node in nodes(source):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in NAMES:
            yield f"{node.lineno}: {node.value}"


def test_numbers_of_apis_occur_only_with_a_reason() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): places
        for path in sorted(PACKAGE.rglob("*.py"))
        if (places := list(api_numbers(path.read_text())))
    }
    assert {path: places for path, places in found.items() if path not in ALLOWED} == {}
    assert ALLOWED.keys() - found.keys() == set(), "these need no exception any more"


def test_names_of_apis_occur_only_in_questions_about_them() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): places
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in QUESTIONS and (places := list(api_names(path.read_text())))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "_FETCHES: Final = (1, 78)\nif request.api_key in _FETCHES: pass",
        "FLOATS = frozenset({48, 49})\nfound = message.api_key in FLOATS",
        "if key not in {11, 14}: pass",
        "if message.api_key == 58: pass",
        "PRODUCE: Final = 0",
        "_API_VERSIONS = 18",
        "PLACES = {(0, 'request'): 'topic_data'}\nplace = PLACES.get((message.api_key, message.type))",
        "PLACES = {(0, 'request'), (1, 'response')}\nfound = (api_key, direction) in PLACES",
        "TOPICS = {0: 'topic_data', 1: 'responses'}\ntopics = TOPICS.get(api_key)",
        "TOPICS = {0: 'topic_data', 1: 'responses'}\ntopics = TOPICS[message.api_key]",
        "if key == _ENVELOPE: pass",
        "from kafkasniff.kafka.apis.entities import ENVELOPE",
        "from kafkasniff.kafka.apis.named_apis import FETCH",
        "from kafkasniff.engine.in_step import PRODUCE",
    ],
)
def test_a_number_would_be_found(source: str) -> None:
    assert list(api_numbers(source))


def test_a_name_would_be_found() -> None:
    assert list(api_names("if message.api == 'Produce': pass"))
    assert not list(api_names("'Produces a thing'"))
