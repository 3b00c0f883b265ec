"""``python -m tests.golden [NAME…]``: write the golden files of all captures again, or of those named."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys

from tests.golden import FOLDER, ROOT, captures, decode, golden_file


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description="Write the golden files again.")
    parser.add_argument("names", nargs="*", help="file names of captures, or patterns; all if none is given")
    names = parser.parse_args().names
    os.chdir(ROOT)
    wanted = [one for one in captures() if not names or any(fnmatch.fnmatch(one.name, name) for name in names)]
    if not wanted:
        parser.error("no capture has such a name")
    for capture in wanted:
        file, new = golden_file(capture), decode(capture)
        if not file.exists() or file.read_bytes() != new:
            file.write_bytes(new)
            print(f"{file.relative_to(ROOT)}: {len(new)} bytes, {len(new.splitlines())} lines")
    for file in set(FOLDER.glob("*.jsonl")) - {golden_file(capture) for capture in captures()}:
        file.unlink()
        print(f"{file.relative_to(ROOT)}: removed, its capture is gone")
    return 0


sys.exit(main())
