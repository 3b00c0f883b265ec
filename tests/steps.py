"""Work counted in steps of the interpreter, which the machine's load does not affect."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(work: Callable[[], object], counts: Callable[[str], bool] = bool) -> int:
    """Number of Python lines that `work` executes in files that `counts` accepts, including each loop iteration.

    C code counts as one step per line.
    """
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace if counts(frame.f_code.co_filename) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
