"""Short inputs with parsers of their own: PROXY headers, first bytes, pasted bytes, times, text for a terminal."""

from __future__ import annotations

import contextlib
import json
import unicodedata
from base64 import b64encode
from collections.abc import Callable
from typing import Final

from kafkasniff.cli.commands.decode_bytes import bytes_from_stdin, bytes_from_text, without_prefix
from kafkasniff.errors import UsageError
from kafkasniff.filters.tree import host_text, parse_duration, parse_moment
from kafkasniff.kafka.apis.dissectors import api_by_name
from kafkasniff.kafka.messages.plausibility import (
    MAX_PROLOGUE,
    is_gssapi_token,
    judge_request,
    may_begin_request,
    name_answer,
    name_protocol,
    proxy_prologue,
)
from kafkasniff.text.printable import printable, visible_json, word
from tests.fuzz.intake import Intake

MAX_LENGTH = 1200
MEGABYTES = 128
WORDS = (
    b"PROXY TCP4 ",
    b"PROXY UNKNOWN\r\n",
    b"\r\n\r\n\x00\r\nQUIT\n",
    b"\x21\x11\x00\x0c",
    b"\x21\x21\x00\x24",
    b"\r\n",
    b"0000: 00 01 02 03",
    b"00000000  ",
    b"  |....|",
    b"\\x00",
    b"2026-11-21T04:00:00Z",
    b"+10s",
    "\u202e".encode(),
    "\u0661".encode(),
    b"\x1b[31m",
)


def _proxy(data: bytes) -> None:
    """A verdict about some bytes does not change with more bytes."""
    said = None
    for size in sorted({0, 1, 5, 6, 12, 15, 16, 17, 30, len(data) // 2, max(len(data) - 1, 0), len(data)}):
        head = data[: min(size, MAX_PROLOGUE)]
        found = proxy_prologue(head)
        if found is not None:
            length, detail = found
            assert 0 <= length <= len(head)
            assert bool(length) == bool(detail)
            assert said in (None, found)
            said = found
    if len(data) >= MAX_PROLOGUE:
        assert said is not None, "it waits for more bytes than such a header has"


def _first_bytes(data: bytes) -> None:
    name_protocol(data)
    is_gssapi_token(data, 0, len(data))
    if len(data) >= 4:
        name_answer(int.from_bytes(data[:4], "big", signed=True))
    for choice in (False, True):
        judge_request(data, 0, len(data), strict=choice)
        may_begin_request(data[:256], aligned=choice)


def _pasted(data: bytes) -> None:
    try:
        found = bytes_from_text(data.decode("utf-8", "replace"))
    except UsageError:
        found = b""
    without_prefix(found)
    if data:
        assert bytes_from_stdin(data) is not None
        assert bytes_from_text(data.hex()) == data
        # Text that is valid base64 and hex is taken as hex.
        text = b64encode(data).decode()
        assert bytes_from_text(text) in (data, bytes_from_text(text))


def _times(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for parse in (parse_duration, parse_moment, host_text):
        with contextlib.suppress(UsageError):
            parse(text)  # type: ignore[operator]  # each takes a text
    api_by_name(text)


def _shown(data: bytes) -> None:
    for shown in (printable(data), word(data), printable(data.decode("utf-8", "replace"))):
        assert shown.isprintable()
        assert not any(unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp", "Cs") for character in shown)
    line = json.dumps(data.decode("utf-8", "replace"), ensure_ascii=False).encode()
    assert json.loads(visible_json(line)) == json.loads(line)


_PARSERS: Final[tuple[Callable[[bytes], None], ...]] = (_proxy, _first_bytes, _pasted, _times, _shown)


def one_input(data: bytes) -> None:
    intake = Intake(data)
    _PARSERS[intake.number() % len(_PARSERS)](intake.rest())


def _seed(parser: Callable[[bytes], None], data: bytes) -> bytes:
    return bytes((_PARSERS.index(parser),)) + data


def seeds() -> list[bytes]:
    four = WORDS[2] + WORDS[3] + bytes((10, 0, 0, 1, 10, 0, 0, 2)) + b"\x12\x34\x23\x84"
    six = WORDS[2] + WORDS[4] + bytes(range(32)) + b"\x12\x34\x23\x84"
    proxies = (b"PROXY TCP4 10.0.0.1 10.0.0.2 1234 9092\r\n", WORDS[1], four, six, four + b"rest" * 200)
    heads = (
        b"GET / HTTP/1.1\r\n",
        b"SSH-2.0-x",
        b"\x16\x03\x01\x02\x00",
        b"AMQP\0\0\x09\1",
        b"\0\x12\0\3\0\0\0\1\xff\xff\0\0",
    )
    dumps = (
        b"00000000  00 12 00 03  00 00 00 01  |........|\n00000010  00 05\n",
        b"0x0000:  4500 0034 1c46 4000 4006  E..4.F@.@.\n\t0x0010:  0a00\n",
        b"\\x00\\x12, 0x00 0x03",
        b"ABIAAwAAAAE=",
    )
    times = (b"10ms", b"1.5s", b"+10s", b"04:00:00.5", b"2026-11-21T04:00:00.123+02:00", b"[::1]:9092", b"10.0.0.1")
    shown = ("plain", "\u202egnp.exe", "\x1b]0;x\x07", "a\\b", "\U000e0041", "日本")
    return [
        *(_seed(_proxy, data) for data in proxies),
        *(_seed(_first_bytes, data) for data in heads),
        *(_seed(_pasted, data) for data in dumps),
        *(_seed(_times, data) for data in times),
        *(_seed(_shown, text.encode()) for text in shown),
    ]
