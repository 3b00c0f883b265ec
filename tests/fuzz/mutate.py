"""A mutator with its own seed: the same inputs on every machine, for tests and where there is no atheris."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

NUMBERS: Final = (0, 1, 2, 3, 4, 7, 8, 12, 14, 16, 60, 61, 127, 128, 255, 256, 1000, 32767, 32768, 65535, 65536)
LIMITS: Final = (-1, -2, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**32 - 1, 2**24)
MOST_CHANGES: Final = 8
LONGEST_PIECE: Final = 200


def inputs(seeds: Sequence[bytes], words: Sequence[bytes], *, seed: int | str, max_length: int) -> Iterator[bytes]:
    """Inputs made from seeds, without end."""
    chance = random.Random(seed)
    while True:
        yield mutated(chance.choice(seeds), seeds, words, chance)[:max_length]


def mutated(data: bytes, seeds: Sequence[bytes], words: Sequence[bytes], chance: random.Random) -> bytes:
    """`data` with some changes: bits, bytes, numbers, pieces removed, doubled or copied from another seed."""
    out = bytearray(data)
    for _ in range(chance.randint(1, MOST_CHANGES)):
        _change(out, seeds, words, chance)
    return bytes(out)


def _change(out: bytearray, seeds: Sequence[bytes], words: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(out) + 1)
    size = chance.randint(1, chance.choice((1, 4, 16, LONGEST_PIECE)))
    match chance.randrange(10):
        case 0 | 1 if at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        case 2 if at < len(out):
            out[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        case 3:
            width = chance.choice((1, 2, 4, 8))
            number = chance.choice((*NUMBERS, *LIMITS, len(out), len(out) - at))
            written = (number & ((1 << 8 * width) - 1)).to_bytes(width, chance.choice(("big", "little")))
            out[at : at + width] = written
        case 4:
            del out[at : at + size]
        case 5:
            out[at:at] = out[at : at + size]
        case 6:
            out[at:at] = chance.randbytes(size)
        case 7 if words:
            word = chance.choice(words)
            out[at : at + chance.choice((0, len(word)))] = word
        case 8:
            other = chance.choice(seeds)
            start = chance.randrange(len(other) + 1)
            out[at : at + chance.choice((0, size))] = other[start : start + size]
        case 9:
            del out[at:]
