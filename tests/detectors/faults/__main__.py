"""``python -m tests.detectors.faults [NAME…]``: write the answers again, all or those of captures so named."""

from __future__ import annotations

import fnmatch
import os
import sys

from tests.detectors.faults import ROOT, answer_file, answers, captures


def main() -> int:
    os.chdir(ROOT)
    for capture in captures():
        if len(sys.argv) > 1 and not any(fnmatch.fnmatch(capture.name, name) for name in sys.argv[1:]):
            continue
        file, new = answer_file(capture), answers(capture)
        if not file.exists() or file.read_text(encoding="utf-8") != new:
            file.write_text(new, encoding="utf-8")
            print(f"{file.relative_to(ROOT)}: {len(new.splitlines())} lines")
    return 0


sys.exit(main())
