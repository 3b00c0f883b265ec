"""`python -m tests.vectors make | check | proven`: README.md explains the three."""

from __future__ import annotations

import lzma
import subprocess
import sys

from captures.record.distribution import SetupError
from tests.proven_file import PROVEN_FILE
from tests.vectors.make import compressed, made
from tests.vectors.proven import PART, proven_lines
from tests.vectors.reader import FILE


def main(arguments: list[str]) -> int:
    match arguments:
        case ["make"]:
            FILE.write_bytes(compressed(made()))
        case ["check"]:
            if lzma.decompress(FILE.read_bytes()) != made():
                print(f"{FILE.name} is not what Kafka's classes make: python -m tests.vectors make", file=sys.stderr)
                return 1
        case ["proven"]:
            text = PROVEN_FILE.read_text(encoding="utf-8") if PROVEN_FILE.exists() else ""
            PROVEN_FILE.write_text(PART.merged(text, proven_lines()), encoding="utf-8")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (SetupError, OSError, subprocess.SubprocessError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)
