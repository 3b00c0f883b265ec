"""An exchange in forms to copy: JSON lines, hex, commands that decode it again. Secrets stay hidden in all of them."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

import msgspec

from kafkasniff.browse.commands import Commands
from kafkasniff.browse.index import Row
from kafkasniff.model import Exchange, Message
from kafkasniff.redact.message import Blanker
from kafkasniff.sinks.jsonl import JsonSink

MAX_CLIPBOARD: Final = 74_000
"""Maximum number of characters for the clipboard: common terminals accept 100 kB of base64 (OSC 52)."""
MAX_ARGUMENT: Final = 100_000
"""Longest hex in a command: Linux accepts arguments of 128 KiB (MAX_ARG_STRLEN)."""

_BLANKER: Final = Blanker(secrets=False, payload=True)


class Copy(NamedTuple):
    """A form, and how its text is made."""

    title: str
    make: Callable[[], str]


def copies(exchange: Exchange, row: Row, commands: Commands) -> Iterator[Copy]:
    """The forms that an exchange has."""
    messages = [message for message in (exchange.request, exchange.response) if message is not None]
    yield Copy("JSON", partial(_json, messages, row))
    for message in messages:
        if message.frame is not None:
            yield Copy(f"{message.type} in hex", partial(_hex, message))
            if _fits_command(message):
                yield Copy(f"{message.type} as a decode-bytes command", partial(_decode_bytes, message))
    number = messages[0].correlation_id
    if commands.captures and commands.lasting and number is not None:
        yield Copy("decode command", partial(shlex.join, commands.decode(row.connection, number)))


def _json(messages: list[Message], row: Row) -> str:
    """The lines of `decode --format json`, but without the number of the exchange, which only a whole reading knows."""
    output = io.BytesIO()
    sink = JsonSink(output)
    for message in messages:
        sink.write(msgspec.structs.replace(message, exchange=None, connection=row.connection))
    sink.close()
    return output.getvalue().decode()


def _shown(message: Message) -> bytes:
    """The bytes of a message; those of secrets are blank, as with `--write-matching`."""
    data = message.frame
    assert data is not None
    visible, _ = _BLANKER.visible(data, message)
    if visible is None:
        return data
    cut = len(data) != message.size
    return bytes(_BLANKER.message(data, 0, len(data), message, request=message.type == "request", cut=cut))


def _hex(message: Message) -> str:
    return _shown(message).hex()


def _fits_command(message: Message) -> bool:
    known = message.type == "request" or message.api_version is not None
    return known and message.frame is not None and 2 * len(message.frame) <= MAX_ARGUMENT


def _decode_bytes(message: Message) -> str:
    command = ["kafkasniff", "decode-bytes"]
    if message.type == "response":
        command += ["--response", "--api", message.api or str(message.api_key), "--version", str(message.api_version)]
    return shlex.join([*command, _hex(message)])
