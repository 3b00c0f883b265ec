"""The grammar of `dissectors/`: text that does not parse raises DefinitionError alone; any other makes programs that
agree with the walker. The first byte of an input says whether it is an API or data blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.records import record_sets
from kafkasniff.kafka.schema.definition import MessageDefinition
from kafkasniff.kafka.schema.schema import Schema, parse_api, parse_data
from tests.fuzz.intake import Intake
from tests.fuzz.messages import check_schema

MAX_LENGTH = 2500
MEGABYTES = 128
WORDS = tuple(
    f" {word} ".encode()
    for word in (
        *("api", "data", "request", "response", "versions", "flexible", "headers", "listeners", "formerly"),
        *("kind", "id", "releases", "nullable", "tag", "entity", "enum", "default", "secret", "config"),
        *("classic", "unaligned", "payload", "nests", "0+", "0-3"),
        *("[]", "{}", "[]?", "{}?", "string?", "bytes", "records", "int32"),
        *("uuid", "error", "bool", "float64", "[]int32", "99999999999999999999"),
    )
)

_DISSECTORS: Final = Path(__file__).resolve().parents[2] / "dissectors"
_PATH: Final = Path("made.txt")
MOST_VERSIONS: Final = 4
_SAMPLES: Final = (b"", bytes(60), b"\1" * 60, b"\2\4ab\0\0\1\5" * 8, b"\xff" * 12)


def one_input(data: bytes) -> None:
    intake = Intake(data)
    of_api = intake.number() & 1
    text = intake.rest().decode("utf-8", "replace")
    messages: list[MessageDefinition] = []
    try:
        if of_api:
            found = parse_api(_PATH, text)
            messages += [found.request, found.response]
        else:
            messages += [definition.message for definition in parse_data(_PATH, text)]
    except DefinitionError as error:
        reported = str(error)
        assert reported.startswith("made.txt:")
        assert "\n" not in reported
        return
    for message in messages:
        versions = message.versions
        for version in list(range(versions.low, versions.high + 1))[-MOST_VERSIONS:]:
            schema = Schema(message, version, record_sets)
            for sample in _SAMPLES:
                check_schema(schema, sample)


def seeds() -> list[bytes]:
    paths = sorted(_DISSECTORS.glob("[0-9]*.txt"))
    found = [b"\1" + path.read_bytes() for path in paths if path.stat().st_size < MAX_LENGTH]
    for path in sorted((_DISSECTORS / "records").glob("*.txt")):
        blocks = path.read_text().split("\ndata ")
        found += [b"\0data " + block.encode() for block in blocks[1:40:3] if len(block) < MAX_LENGTH]
    return found
