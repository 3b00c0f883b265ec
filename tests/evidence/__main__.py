"""``python -m tests.evidence [NAME…]``: ask Kafka's classes (Java 17, Maven) about captures, those without current
evidence by default, and list in ``proven.txt`` what they prove. After ``python -m tests.golden``."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from pathlib import Path

from captures.record.distribution import SetupError
from tests.evidence.kafka_classes import PROGRAM, RELEASES, evidence, evidence_file, make
from tests.evidence.proven import PART, proven_lines
from tests.golden import ROOT, captures
from tests.proven_file import PROVEN_FILE


def _is_current(capture: Path) -> bool:
    try:
        return {reported["kafka"] for _, reported in evidence(capture)} <= set(RELEASES)
    except (OSError, ValueError):
        return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.evidence", description="Make the evidence again.")
    parser.add_argument("names", nargs="*", help="file names of captures, or patterns; '*' for all")
    names = parser.parse_args().names
    os.chdir(ROOT)
    if names:
        wanted = [one for one in captures() if any(fnmatch.fnmatch(one.name, name) for name in names)]
    else:
        wanted = [one for one in captures() if not _is_current(one)]
    try:
        make(wanted)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    for capture in wanted:
        print(f"{evidence_file(capture).relative_to(ROOT)}: {evidence_file(capture).stat().st_size} bytes")
    for file in set(PROGRAM.parent.glob("*.gz")) - {evidence_file(capture) for capture in captures()}:
        file.unlink()
        print(f"{file.relative_to(ROOT)}: removed, its capture is gone")
    evidence.cache_clear()
    text = PROVEN_FILE.read_text(encoding="utf-8") if PROVEN_FILE.exists() else ""
    PROVEN_FILE.write_text(PART.merged(text, proven_lines(captures())), encoding="utf-8")
    return 0


sys.exit(main())
