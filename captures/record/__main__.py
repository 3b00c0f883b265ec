"""``python -m captures.record [NAME…]``: record all captures again, or those named."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from pathlib import Path

from .distribution import SetupError
from .readme import write_table
from .scenario import manifest_lock, read_manifest, record, write_manifest
from .scenarios import SCENARIOS

CAPTURES = Path(__file__).resolve().parent.parent


def main() -> int:
    """Exit code 1 if a scenario failed; the others are kept."""
    parser = argparse.ArgumentParser(prog="python -m captures.record", description="Record captures of a real broker.")
    parser.add_argument("names", nargs="*", help="file names or patterns; all if none is given")
    parser.add_argument("--list", action="store_true", help="print the scenarios and stop")
    parser.add_argument("--table", action="store_true", help="only write descriptions and README.md's table anew")
    options = parser.parse_args()
    if options.list:
        for scenario in SCENARIOS.values():
            print(f"{scenario.file:44} {scenario.shows}")
        return 0
    failed = False
    chosen = [] if options.table else [name for name in SCENARIOS if _wanted(name, options.names)]
    if not chosen and not options.table:
        parser.error("no scenario has such a name")
    for name in chosen:
        print(f"{name} …", flush=True)
        directory = CAPTURES / SCENARIOS[name].folder
        try:
            entry = record(SCENARIOS[name], directory)
        except SetupError as error:
            print(f"{name} failed: {error}", file=sys.stderr)
            failed = True
            continue
        with manifest_lock(directory):
            entries = read_manifest(directory)
            entries[name] = entry
            write_manifest(directory, entries)
        print(f"{name}: {entry['packets']} packets, {entry['bytes']} bytes, {entry['client']}", flush=True)
    for directory in sorted({CAPTURES / scenario.folder for scenario in SCENARIOS.values()}):
        with manifest_lock(directory):
            entries = read_manifest(directory)
            for name, entry in entries.items():
                entry["shows"] = SCENARIOS[name].shows
            write_manifest(directory, entries)
            write_table(directory)
    return 1 if failed else 0


def _wanted(name: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


sys.exit(main())
