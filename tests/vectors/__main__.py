"""`python -m tests.vectors make | check | proven`: README.md explains the three."""

from __future__ import annotations

import lzma
import sys

from tests.vectors.make import compressed, made
from tests.vectors.proven import proven_lines
from tests.vectors.reader import FILE


def main(arguments: list[str]) -> int:
    match arguments:
        case ["make"]:
            FILE.write_bytes(compressed(made()))
        case ["check"]:
            if lzma.decompress(FILE.read_bytes()) != made():
                print(f"{FILE.name} is not what Kafka's classes make today: python -m tests.vectors make", file=sys.stderr)
                return 1
        case ["proven"]:
            print("\n".join(proven_lines()))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
