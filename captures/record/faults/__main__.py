"""``python -m captures.record.faults [NAME…]``: record captures of trouble again, all or those named."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from pathlib import Path

from ..distribution import SetupError
from . import faults, record

FOLDER = Path(__file__).resolve().parents[2] / "faults"


def main() -> int:
    """Exit code 1 if a recording failed; the others are kept."""
    parser = argparse.ArgumentParser(prog="python -m captures.record.faults", description=__doc__)
    parser.add_argument("names", nargs="*", help="file names or patterns; all if none is given")
    parser.add_argument("--list", action="store_true", help="print the recordings and stop")
    options = parser.parse_args()
    known = faults()
    if options.list:
        for fault in known.values():
            print(f"{fault.file:44} {fault.shows}")
        return 0
    chosen = [name for name in known if not options.names or any(fnmatch.fnmatch(name, p) for p in options.names)]
    if not chosen:
        parser.error("no recording has such a name")
    failed = False
    for name in chosen:
        print(f"{name} …", flush=True)
        try:
            origin = record(known[name], FOLDER)
        except SetupError as error:
            print(f"{name} failed: {error}", file=sys.stderr)
            failed = True
            continue
        print(f"{name}: {origin['bytes']} bytes", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
