"""`kafkasniff decode-bytes`: one message, pasted from a log or a hexdump, without a capture."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.shared_options import color_option, definitions_option, format_option, output_option
from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from kafkasniff.kafka.schema.walker import Span
    from kafkasniff.model import Message
    from kafkasniff.text.printable import Paint

# Bytes as people paste them: hex in its many forms, hexdumps, base64, or raw from stdin.

MAX_INPUT: Final = 256 << 20
"""Maximum input: a message of 100 MiB in hex, with room for white space."""

# A line of a hexdump: an offset, groups of hex digits, then after two spaces or a bar the bytes as text (xxd, hexdump,
# tcpdump).
_DUMP_LINE: Final = re.compile(
    r"\s*(?:0x)?[0-9a-fA-F]{4,8}:?\s{1,3}"
    r"((?:[0-9a-fA-F]{2}){1,8}(?:\s{1,2}(?:[0-9a-fA-F]{2}){1,8})*)"
    r"(?:\s{2,}.*|\s*\|.*)?"
)
_SEPARATORS: Final = re.compile(r"[\s,:;\[\]()-]|0[xX](?=[0-9a-fA-F])|\\x")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})+")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")


def bytes_from_text(text: str) -> bytes:
    """The bytes that a text represents. Raises UsageError if it is neither hex nor base64.

    Text that could be both is hex: a base64 text of only hex digits is very unlikely.
    """
    text = text.strip()
    if not text:
        raise UsageError("no bytes given")
    found = _dump(text)
    if found is None:
        digits = _SEPARATORS.sub("", text)
        found = bytes.fromhex(digits) if _HEX.fullmatch(digits) else _base64(text)
    if found is None:
        raise UsageError("the input is neither hex nor base64")
    return found


def _dump(text: str) -> bytes | None:
    """The bytes of a hexdump; None if a line is not one. Lines of hex without an offset are not a dump."""
    matches = [_DUMP_LINE.fullmatch(line) for line in text.splitlines() if line.strip()]
    if len(matches) < 2 and not (matches and matches[0] and re.match(r"\s*(?:0x)?0+:?\s", text)):
        return None
    # `fromhex` skips fewer kinds of white space than `\s` and `split` do.
    pieces = [bytes.fromhex("".join(match[1].split())) for match in matches if match is not None]
    if len(pieces) < len(matches):
        return None
    return b"".join(pieces)


def _base64(text: str) -> bytes | None:
    joined = "".join(text.split())
    if not _BASE64.fullmatch(joined):
        return None
    joined = joined.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64decode(joined + "=" * (-len(joined) % 4), validate=True)
    except binascii.Error:
        return None


def bytes_from_stdin(data: bytes) -> bytes:
    """Bytes of hex or base64 text; anything else is the message itself. Raises UsageError for empty input."""
    if not data:
        raise UsageError("no bytes on stdin")
    if data.isascii() and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in data):
        try:
            return bytes_from_text(data.decode("ascii"))
        except UsageError:
            return data
    return data


def without_prefix(data: bytes) -> tuple[bytes, bool]:
    """The message without its length prefix, and whether it had one: an int32 that matches exactly."""
    if len(data) > 4 and int.from_bytes(data[:4], "big") == len(data) - 4:
        return data[4:], True
    return data, False


WIDTH_OF_TYPES: Final = 100
"""Columns of a terminal for which the types of fields are shown; bytes and values take some 80."""
WIDTH_OF_TEXT: Final = 80
"""Columns of a terminal for which bytes are also shown as text, which the values of most fields repeat."""


@click.command("decode-bytes", cls=SectionedCommand)
@click.argument("data", nargs=-1, required=True, metavar="HEX|BASE64|-")
@click.option("--response", is_flag=True, help="Decode a response, which needs --api and --version.")
@definitions_option
@click.option("--api", "api_name", metavar="NAME|KEY", help="API of the response.")
@click.option("--version", type=click.IntRange(0, 0x7FFF), metavar="N", help="Version of the response.")
@format_option("JSON")
@click.option(
    "--bytes",
    "bytes_form",
    type=click.Choice(["auto", "base64", "hex"]),
    default="auto",
    help="How JSON shows bytes; auto: as text if they are UTF-8, else base64.",
)
@click.option("--show-secrets", is_flag=True, help="Show passwords, SASL tokens and other secrets.")
@output_option
@color_option
@click.option("-v", "--verbose", count=True, help="Also show the body as a tree.")
@click.option("-x", "--hex", count=True, help="Show all bytes of long fields.")
@click.pass_obj
def decode_bytes_command(environment: Environment, /, data: tuple[str, ...], **options: Any) -> int:
    """Decode one message: a request, or with --response, --api and --version a response.

    The bytes are hex (plain, with separators, or a hexdump) or base64. With `-` they come from stdin, in these forms
    or raw. A leading length prefix is recognised.
    """
    environment.verbosity = options["verbose"]
    from kafkasniff.cli.output import Output

    kind: Literal["request", "response"] = "response" if options["response"] else "request"
    key = _api_key(kind, options["api_name"], options["version"])
    content, prefixed = without_prefix(_read(environment, " ".join(data)))
    message = _decode(kind, content, key, options["version"], options["show_secrets"])
    from kafkasniff.kafka.messages.message_spans import message_spans
    from kafkasniff.sinks.hex_view import HexView
    from kafkasniff.sinks.tree import body_tree
    from kafkasniff.text.printable import COLOUR, PLAIN

    secrets = options["show_secrets"]
    with Output(environment, options["output"]) as output:
        if options["form"] == "json":
            spans = message_spans(message, content, show_secrets=secrets)
            output.write_json(_json(message, spans, options["bytes_form"]))
        else:
            paint = COLOUR if output.coloured(options["color"]) else PLAIN
            width = environment.width if output.is_terminal else None
            lines = _head(message, paint, " after the length prefix" if prefixed else "", width)
            least = {"types": WIDTH_OF_TYPES, "text": WIDTH_OF_TEXT}
            shown = {name: width is None or width >= columns for name, columns in least.items()}
            view = HexView(paint, whole=options["hex"] > 0, secrets=secrets, width=width, below=True, **shown)
            lines += ["", *view.lines(message, content)]
            if not all(shown.values()):
                hidden = ", ".join(name for name in shown if not shown[name])
                lines.append(f"{paint.dim}hidden: {hidden} ({WIDTH_OF_TYPES} columns show all){paint.reset}")
            if options["verbose"]:
                lines += ["", *body_tree(message, paint, records=True, width=environment.width)]
            output.write_text("".join(f"{line}\n" for line in lines), "backslashreplace")
    return Exit.OK


def _api_key(kind: str, name: str | None, version: int | None) -> int | None:
    if kind == "request":
        if name is not None or version is not None:
            raise UsageError("--api and --version need --response: a request contains its own")
        return None
    if name is None or version is None:
        raise UsageError("a response does not contain its API and version: give --api and --version")
    if name.isdecimal():
        return int(name)
    from kafkasniff.kafka.apis.dissectors import find_api

    return find_api(name).key


def _read(environment: Environment, data: str) -> bytes:
    if data != "-":
        return bytes_from_text(data)
    content = environment.stdin.read(MAX_INPUT + 1)
    if len(content) > MAX_INPUT:
        raise UsageError(f"stdin holds more than {MAX_INPUT >> 20} MiB")
    return bytes_from_stdin(content)


def _decode(
    kind: Literal["request", "response"], content: bytes, key: int | None, version: int | None, show_secrets: bool
) -> Message:
    import msgspec

    from kafkasniff.kafka.messages.message import decode_request, decode_response
    from kafkasniff.kafka.schema.context import DecodeOptions
    from kafkasniff.model import Message

    options = DecodeOptions(show_secrets=show_secrets)
    if key is None or version is None:
        decoded = decode_request(content, 0, len(content), options)
    else:
        decoded = decode_response(content, 0, len(content), key, version, options)
    return msgspec.structs.replace(
        Message(kind, len(content)),
        **{name: getattr(decoded, name) for name in decoded.__struct_fields__ if name in Message.__struct_fields__},
    )


def _json(message: Message, spans: list[Span], form: Literal["auto", "base64", "hex"]) -> dict[str, Any]:
    from kafkasniff.sinks.jsonl import message_object

    item = message_object(message, form=form)
    # Offsets count from the first byte of the message, as in problems.
    item["spans"] = [{"start": span.start, "end": span.end, "type": span.type, "path": span.path} for span in spans]
    return item


def _head(message: Message, paint: Paint, prefixed: str, width: int | None) -> list[str]:
    """Name and size of the message, and its problems, in lines of this width."""
    from kafkasniff.sinks.summaries.templates import summary
    from kafkasniff.text.printable import PLAIN, display_width, printable, wrapped

    name = message.api or (f"API {message.api_key}" if message.api_key is not None else "not a Kafka message:")
    version = "" if message.api_version is None else f" v{message.api_version}"
    lines = [f"{paint.api}{name}{version}{paint.reset} {message.type}, {message.size} bytes{prefixed}"]
    line = summary(message, PLAIN)
    if line:
        wide = width is not None and display_width(line) > width
        lines += wrapped(line, width) if wide and width else [summary(message, paint)]
    for problem in message.problems:
        place = "" if problem.offset is None else f" (at byte {problem.offset:#06x})"
        text = f"{problem.kind}: {printable(problem.detail)}{place}"
        lines += (f"{paint.warn}{one}{paint.reset}" for one in (wrapped(text, width) if width else [text]))
    return lines
