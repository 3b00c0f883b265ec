"""The native fuzzer: `native/fuzz.zig` with the kernel in it, compiled as the kernel is."""

from __future__ import annotations

import argparse
import ctypes
import functools
import mmap
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hatch_build import PLATFORMS, ROOT, this_platform

REPORT_SECONDS: Final = 30


@functools.cache
def compiled() -> ctypes.CDLL:
    """The fuzzer with the kernel in it, compiled as the kernel is; half a minute, once per process."""
    name = this_platform()
    if name is None:
        raise SystemExit("there is no compiler for this platform")
    with tempfile.TemporaryDirectory(prefix="kafkasniff-fuzz-") as work:
        folder = Path(work)
        facts, made = folder / "build_facts.zig", folder / "fuzz.so"
        facts.write_text('pub const sources = "fuzz";\n')
        command = [
            *(sys.executable, "-m", "ziglang", "build-lib", "-dynamic", "-OReleaseSafe", "-fsingle-threaded"),
            *(*PLATFORMS[name].zig, "--name", "fuzz", "--dep", "kernel"),
            *(f"-Mroot={ROOT / 'tests/fuzz/native/fuzz.zig'}", "--dep", "build_facts"),
            *(f"-Mkernel={ROOT / 'kafkasniff/kernel/kernel.zig'}", f"-Mbuild_facts={facts}"),
            *("--cache-dir", str(folder / "local"), "--global-cache-dir", str(folder / "global")),
            f"-femit-bin={made}",
        ]
        subprocess.run(command, check=True, cwd=folder)
        return ctypes.CDLL(str(made))


def rounds(options: argparse.Namespace, run: Any) -> Iterator[None]:
    """Prepares the rounds of a run until it has had its executions or seconds.

    Prints the executions so far after the first round, then at intervals of `REPORT_SECONDS`, and at the end.
    """
    run.random = options.seed * 2 + 1
    done, begin, cpu = 0, time.monotonic(), time.process_time()
    due = begin

    def report() -> None:
        print(f"{done:,} executions, {time.process_time() - cpu:,.0f} s of CPU", flush=True)

    while done < options.executions and (not options.seconds or time.monotonic() - begin < options.seconds):
        run.executions = min(options.every, options.executions - done)
        yield
        done += run.executions
        if done < options.executions and time.monotonic() >= due:
            report()
            due = time.monotonic() + REPORT_SECONDS
    report()


class Room:
    """Memory for an input of at most `size` bytes. It ends at a page that cannot be read: a read past it is a crash."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._area = mmap.mmap(-1, size + mmap.PAGESIZE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._area))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(self.address + size), mmap.PAGESIZE, 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def last(self, size: int) -> bytes:
        return ctypes.string_at(self.address + self.size - size, size)
