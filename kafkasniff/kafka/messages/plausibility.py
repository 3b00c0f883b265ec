"""How likely bytes of unknown kind are a request."""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from kafkasniff.kafka.apis.dissectors import api, api_keys
from kafkasniff.kafka.apis.named_apis import PRODUCE
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.messages.message_header import request_header
from kafkasniff.kafka.messages.other_protocols import is_gssapi_token
from kafkasniff.kafka.schema.context import DecodeOptions

__all__ = [
    "BEGINNING",
    "MAX_KEY",
    "has_request_form",
    "highest_versions",
    "is_answer",
    "is_likely_request",
    "judge_request",
    "may_be_request",
    "may_begin_request",
]

BEGINNING: Final = 256
"""Bytes of an incomplete request that are examined."""

MAX_KEY: Final = 1_000
"""Highest plausible API key: Kafka has 95 after fifteen years."""
MAX_VERSION: Final = 100
"""Highest plausible version: Fetch has 18."""
NEWER_VERSIONS: Final = 3
"""A client may be newer than the dissectors: versions this much above the known ones are plausible."""
MAX_ODDITY: Final = 512
"""A request with surplus bytes after its body is plausible up to this size."""
_HEADER: Final = Struct(">hhih")
"""API key, version, correlation id, length of the client id."""
_CLIENT_ID: Final = 10
"""Bytes before the client id."""
_SKIP_RECORDS: Final = DecodeOptions(records="skip", show_secrets=True, inside=False)


def _highest_version(api_key: int) -> int:
    """The highest plausible version of an API; -1 if the API is unknown."""
    known = api(api_key)
    return -1 if known is None else known.max_version + NEWER_VERSIONS


@cache
def highest_versions() -> NDArray[np.int32]:
    """`_highest_version` of each API, by key. All definitions are read for it."""
    return np.array([_highest_version(key) for key in range(max(api_keys()) + 1)], np.int32)


def judge_request(data: bytes, start: int, end: int, *, strict: bool) -> Literal["exact", "plausible", "no"]:
    """How likely these bytes are a request.

    exact: of a known version, consumed to the last byte by its body; plausible: a valid header, and a body
    that decodes except for an oddity, such as the surplus bytes that some clients send. `strict`: for bytes of unknown
    kind, so a client id must be printable and the version known.
    """
    header = request_header(data, start, end, strict=strict)
    if header is None or header.api_key not in api_keys():
        return "no"
    decoded = decode_request(data, start, end, _SKIP_RECORDS)
    kinds = {problem.kind for problem in decoded.problems}
    if "version-unknown" in kinds:
        return "plausible"
    if decoded.body is None or decoded.raw is not None:
        return "no"
    if "trailing-bytes" in kinds and len(data[start:end]) > MAX_ODDITY + header.length:
        return "no"
    # A short response with small ids decodes as a Produce request without data.
    nothing = header.api_key == PRODUCE and not decoded.body.get("topic_data")
    return "plausible" if kinds or nothing else "exact"


def has_request_form(data: bytes, size: int) -> bool:
    """Whether the available bytes of a frame of `size` are the header of a request of any API and version.

    Sufficient if the user says that they are a client's.
    """
    if size < _CLIENT_ID or len(data) < _CLIENT_ID:
        return False
    key, version, _, length = _HEADER.unpack_from(data)
    if not (0 <= key <= MAX_KEY or key in api_keys()):
        return False
    if not (0 <= version <= MAX_VERSION and -1 <= length <= size - _CLIENT_ID):
        return False
    stop = min(_CLIENT_ID + max(length, 0), len(data))
    cut = stop - _CLIENT_ID < length
    return data[_CLIENT_ID:stop].decode("utf-8", "ignore" if cut else "replace").isprintable()


def is_likely_request(data: bytes, start: int, end: int) -> bool:
    """Whether these bytes have a plausible header, even if their body is odd or truncated.

    A header without a client id says little: then the body has to decode, except for trailing bytes, and must neither
    be all zeros, as a token may be, nor a Produce without data.
    """
    header = request_header(data, start, end, strict=True)
    if header is None or header.api_key not in api_keys():
        return False
    if header.client_id:
        return True
    judgement = judge_request(data, start, end, strict=True)
    says_something = header.api_key != PRODUCE and any(data[start + header.length : end])
    return judgement == "exact" or (judgement == "plausible" and says_something)


def is_answer(request: bytes, response: bytes) -> bool:
    """Whether `response` exactly decodes as one to a request of a known version; ids are not compared."""
    header = request_header(request, 0, len(request), strict=True)
    if header is None:
        return False
    decoded = decode_response(response, 0, len(response), header.api_key, header.api_version, _SKIP_RECORDS)
    return bool(decoded.body) and not decoded.problems


def may_begin_request(head: bytes, *, aligned: bool) -> bool:
    """Whether a request, or the token of GSSAPI as in 0.9, may begin with these bytes, at most BEGINNING of them.

    `aligned`: they are the first of their stream.
    """
    if len(head) < 4 or is_gssapi_token(head, 0, len(head)) or (aligned and head[0] == 0x60):
        return True
    if int.from_bytes(head[2:4], "big") > _highest_version(int.from_bytes(head[:2], "big")):
        return False
    if aligned or len(head) < 10:
        return True
    # An invalid size may be anything up to the bound: the following frames must not wait until it is reached.
    length = int.from_bytes(head[8:10], "big", signed=True)
    return length >= -1 and head[10 : 10 + max(length, 0)].decode("utf-8", "ignore").isprintable()


def may_be_request(data: bytes, size: int, *, known: bool) -> bool:
    """Whether the available bytes of a frame of `size` have a plausible request header.

    `known`: the stream is certainly the client's. Else it may be the broker's, whose responses look like Produce
    requests without a client id: then there must be one.
    """
    header = request_header(data, 0, len(data))
    if header is None:
        return _is_cut_in_client_id(data, size)
    return known or bool(header.client_id)


def _is_cut_in_client_id(data: bytes, size: int) -> bool:
    """Whether the available part of a frame is a request's header up to somewhere in its client id, or to its end."""
    if len(data) == size or len(data) <= _CLIENT_ID:
        return False
    length = int.from_bytes(data[_CLIENT_ID - 2 : _CLIENT_ID], "big", signed=True)
    if not len(data) - _CLIENT_ID <= length <= size - _CLIENT_ID:
        return False
    if request_header(data[: _CLIENT_ID - 2] + b"\xff\xff\0", 0, _CLIENT_ID + 1, strict=True) is None:
        return False
    return data[_CLIENT_ID:].decode("utf-8", "ignore").isprintable()
