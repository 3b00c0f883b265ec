"""Summaries of messages: the templates of `dissectors/summaries.txt`, each parsed on first use, and what has none.

APIs without a template get `general`. Errors, throttling and nested messages are shown in the same way for all.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema.codes import read_data
from kafkasniff.kafka.schema.definition import Struct
from kafkasniff.model import Body, Direction, Message
from kafkasniff.sinks.summaries import syntax
from kafkasniff.sinks.summaries.interpreter import interpreter
from kafkasniff.sinks.summaries.phrases import NO_ID, amount, error_phrase, few, label_of
from kafkasniff.sinks.summaries.syntax import Parts, parse
from kafkasniff.sinks.tree import enum_name, layout_of, nested_field
from kafkasniff.text.printable import Paint, word

# -- APIs without a template: names first, then values that are neither null nor a default -----------------------------


FIELDS_SHOWN: Final = 4
"""Number of fields of a body shown in a line."""
BYTES_SHOWN: Final = 32
"""Longer bytes fields are shown only by their size."""

# Shown elsewhere (errors, throttling) or not interesting in a line.
LEFT_OUT: Final = frozenset({"throttle_time_ms", "error_code", "error_message", "timeout_ms", "_unknown_tags"})
"""Fields that are not shown."""
_DULL: Final[tuple[object, ...]] = (None, "", -1, NO_ID)
_NUMBERS: Final = frozenset({"int8", "int16", "uint16", "int32", "uint32", "int64"})


def general_nodes(layout: Struct) -> syntax.Parts | None:
    """The same as a template for bodies of a layout; None if they have more than a few numbers and booleans."""
    fields = [field for field in (*layout.fields, *layout.tagged) if field.name not in LEFT_OUT]
    if len(fields) > FIELDS_SHOWN:
        return None
    parts: list[syntax.Sequence] = []
    for field in fields:
        path = (field.name,)
        if field.array or field.tag is not None or field.enum or field.secret != "no":
            return None
        if field.type == "bool":
            shown: syntax.Sequence = (syntax.Text(field.name.replace("_", " ")),)
            tests: tuple[syntax.Test, ...] = (syntax.Test(path, "some"),)
        elif field.type in _NUMBERS:
            shown = syntax.Text(f"{field.name.removesuffix('_id')} "), syntax.Value(path)
            tests = syntax.Test(path, "!="), syntax.Test(path, "!=", -1)
        else:
            return None
        parts.append((syntax.Choice((syntax.Option(tests, shown),)),))
    return syntax.Parts(tuple(parts) or ((),))


def _scalar(name: str, value: object, enum: str | None) -> str:
    if isinstance(value, bool):
        return name.replace("_", " ") if value else ""
    if isinstance(value, bytes) and len(value) > BYTES_SHOWN:
        return f"{name} {amount(len(value))}"
    name_of = None if enum is None else enum_name(enum, value)
    return f"{name.removesuffix('_id')} {word(value) if name_of is None else name_of}"


def _array(name: str, value: list[Any]) -> str:
    if not value:
        return ""
    if isinstance(value[0], dict):
        # Elements with an error are shown with the errors.
        items = [item for item in value if isinstance(item, dict) and not item.get("error_code")]
        labels = [label for label in map(label_of, items) if label is not None]
        if len(labels) < len(items):
            return f"{len(value)} {name}"
        return f"{name} {few(labels)}" if labels else ""
    return f"{name} {few([word(item) for item in value])}"


def general(message: Message) -> str:
    """The first few significant fields of a body."""
    body = message.body or {}
    if body.keys() <= LEFT_OUT:
        return ""  # as for the responses of many APIs
    return _fields(body, layout_of(message))


def _fields(body: Body, layout: Struct | None) -> str:
    fields = {field.name: field for field in (*layout.fields, *layout.tagged)} if layout is not None else {}
    phrases: list[str] = []
    for name, value in body.items():
        if name in LEFT_OUT or any(value is dull or value == dull for dull in _DULL):
            continue
        field = fields.get(name)
        if isinstance(value, dict) and "redacted" not in value:
            inner = _fields(value, None if field is None else field.struct)
            text = f"{name} ({inner})" if inner else ""
        elif isinstance(value, list):
            text = _array(name, value)
        else:
            text = _scalar(name, value, None if field is None else field.enum)
        if text:
            phrases.append(text)
        if len(phrases) == FIELDS_SHOWN:
            break
    return ", ".join(phrases)


# -- messages that a broker forwards -----------------------------------------------------------------------------------


def envelope(message: Message, paint: Paint) -> str:
    """The summary of the message in an Envelope, preceded by its API, and in a request by its sender."""
    body = message.body or {}
    outer = [error for error in message.errors if not error.path.startswith("_response.")]
    errors = error_phrase(msgspec.structs.replace(message, errors=tuple(outer)), paint) if outer else ""
    request = message.type == "request"
    inside = body.get("_request" if request else "_response")
    if isinstance(inside, dict) and inside.get("api_key") is not None:
        text = _inside(message, inside, paint)
        return f"{errors}; {text}" if errors else text
    value = body.get(nested_field(message) or "")
    if isinstance(value, dict) and "redacted" in value:
        return errors or f"{amount(value['redacted'])}, redacted"
    return errors or (amount(len(value)) if isinstance(value, bytes) else "")


def _inside(message: Message, inside: Body, paint: Paint) -> str:
    api = inside.get("api")
    name = f"API {inside.get('api_key')}" if api is None else word(api)
    head = f"{paint.api}{name} v{inside.get('api_version')}{paint.reset}"
    below = "_response.body."
    inner = Message(
        message.type,
        0,
        api_key=inside.get("api_key"),
        api=api,
        api_version=inside.get("api_version"),
        body=inside.get("body"),
        body_version=inside.get("body_version"),
        errors=tuple(
            msgspec.structs.replace(error, path=error.path.removeprefix(below))
            for error in message.errors
            if error.path.startswith(below)
        ),
    )
    if message.type == "request":
        head += f" corr {inside.get('correlation_id')} of {_sender(message.body or {}, inside)}"
    text = summary(inner, paint)
    return f"{head}: {text}" if text else head


def _sender(body: Body, inside: Body) -> str:
    """The client id, and the principal and address that sent the request."""
    parts = []
    principal = body.get("_request_principal")
    if isinstance(principal, dict):
        value = principal["value"]
        parts.append(f"{word(value.get('type'))}:{word(value.get('name'))}")
    address = body.get("_client_host_address")
    if address is not None:
        parts.append(f"at {word(address)}")
    client = word(inside.get("client_id"))
    return f"{client} ({' '.join(parts)})" if parts else client


# -- templates ---------------------------------------------------------------------------------------------------------


FILE: Final = "summaries.txt"
_HEAD: Final = re.compile(r"phrase (?P<phrase>[a-z_]+)|(?P<api>[A-Za-z]+) (?P<direction>request|response)")

_CONTINUED: Final = " " * 4

_Lines = tuple[str, ...]


@functools.cache
def _blocks() -> tuple[dict[str, _Lines], dict[tuple[str, str], _Lines]]:
    """The lines of phrases by name, and those of templates by API and direction."""
    path, lines = read_data(FILE)
    named: dict[str, list[str]] = {}
    found: dict[tuple[str, str], list[str]] = {}
    current: list[str] | None = None
    for number, line in lines:
        head = _HEAD.fullmatch(line)
        if current and line.startswith(_CONTINUED):
            current[-1] += line.strip()
            continue
        if line.startswith("  ") and current is not None:
            current.append(line.strip())
            continue
        if head is None:
            raise DefinitionError(f"{path}:{number}: neither `API request`, `API response`, `phrase NAME` nor a part")
        current = []
        kept = (
            named.setdefault(head["phrase"], current)
            if head["phrase"]
            else found.setdefault((head["api"], head["direction"]), current)
        )
        if kept is not current:
            raise DefinitionError(f"{path}:{number}: a second template of {line!r}")
    return (
        {name: tuple(parts) for name, parts in named.items()},
        {title: tuple(parts) for title, parts in found.items()},
    )


def titles() -> tuple[tuple[str, str], ...]:
    """Name of the API and direction of each template."""
    return tuple(_blocks()[1])


def phrases() -> tuple[str, ...]:
    """The names of all phrases."""
    return tuple(_blocks()[0])


def template(name: str, direction: str) -> Parts | None:
    """The template of an API by its name; None if it has none. Raises DefinitionError if it does not parse."""
    shared, found = _blocks()
    lines = found.get((name, direction))
    return None if lines is None else parse(lines, shared, f"{FILE}: {name} {direction}")


@functools.lru_cache(maxsize=1024)  # keys come from the wire
def render_of(api_key: int, direction: Direction) -> Callable[[Body, int], str] | None:
    """The function for summaries of bodies with a version; None if the API has no template."""
    api = dissectors.api(api_key)
    if api is None:
        return None
    parts = template(api.name, direction)
    return None if parts is None else interpreter(parts, api.definition.message(direction).fields)


# -- summaries ---------------------------------------------------------------------------------------------------------


def summary(message: Message, paint: Paint) -> str:
    """The end of a message's line, escaped; "" if there is nothing to show. Hot."""
    body, key = message.body, message.api_key
    if body is None or key is None:
        return ""
    render = render_of(key, message.type)
    if render is not None:
        text = render(body, message.api_version or 0)
    elif nested_field(message) is not None:
        return envelope(message, paint)
    else:
        text = general(message)
    if message.type == "request":
        return text
    if message.errors:
        errors = error_phrase(message, paint)
        text = f"{errors}; {text}" if text else errors
    throttle = body.get("throttle_time_ms")
    if throttle:
        text = f"{text or 'ok'}, {paint.warn}throttled {throttle} ms{paint.reset}"
    return text or "ok"
