"""``python -m tests.analysis.detectors.faults [NAME…]``: regenerate the answers of all captures, or of those named."""

from __future__ import annotations

import fnmatch
import os
import sys

from tests.analysis.detectors.faults import ROOT, answer_file, answers, captures


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
