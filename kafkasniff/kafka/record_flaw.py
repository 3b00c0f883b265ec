"""Varints of records, and what is wrong with a record that does not add up: the slow paths of `record_batch`."""

from __future__ import annotations

__all__ = ["MalformedError", "find_flaw", "read_varint"]


class MalformedError(ValueError):
    """A varint of more bytes than its type can have, or a length that cannot be."""


class _FlawError(Exception):
    """Carries a flaw out of nested reads; never leaves this module."""

    def __init__(self, position: int, detail: str) -> None:
        super().__init__(detail)
        self.position = position
        self.detail = detail


def read_varint(data: bytes, position: int, size: int) -> tuple[int, int]:
    """Unsigned varint of at most `size` bytes; raises IndexError past the end, MalformedError where it does not end."""
    value = shift = 0
    for index in range(position, position + size):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 128:
            # 5 bytes carry 35 bits and 10 carry 70: Java drops those beyond its type.
            return value & (0xFFFFFFFF if size == 5 else 0xFFFFFFFFFFFFFFFF), index + 1
        shift += 7
    raise MalformedError


def find_flaw(data: bytes, start: int, end: int) -> tuple[int, str]:
    """What is wrong with the record at `start`, and where: read as in `decode_record_list`, every step checked."""
    position = start
    stop = end

    def number(name: str, size: int) -> int:
        nonlocal position
        try:
            value, after = read_varint(data, position, size)
        except MalformedError:
            raise _FlawError(position, f"{name} is a varint of more than {size} bytes") from None
        except IndexError:
            raise _FlawError(position, f"{name} is cut off") from None
        if after > stop:
            raise _FlawError(position, f"{name} is cut off")
        position = after
        return value >> 1 ^ -(value & 1)

    def field(name: str, *, nullable: bool = True) -> None:
        nonlocal position
        at = position
        length = number(f"the length of {name}", 5)
        if length < (-1 if nullable else 0):
            raise _FlawError(at, f"{name} has the length {length}")
        if length > stop - position:
            raise _FlawError(at, f"{name} of {length} bytes where {stop - position} are left")
        position += max(length, 0)

    try:
        length = number("its length", 5)
        if length < 0 or length > end - position:
            return start, f"its length is {length} where {end - position} bytes are left in the batch"
        stop = position + length
        if position >= stop:
            return start, f"its length is {length}"
        position += 1
        number("the timestamp delta", 10)
        number("the offset delta", 5)
        field("the key")
        field("the value")
        at = position
        count = number("the number of headers", 5)
        if count < 0 or count > (stop - position) // 2:
            return at, f"{count} headers where {stop - position} bytes are left"
        for index in range(count):
            field(f"the key of header {index}", nullable=False)
            field(f"the value of header {index}")
    except _FlawError as flaw:
        return flaw.position, flaw.detail
    return position, f"{stop - position} bytes are left over behind its fields"
