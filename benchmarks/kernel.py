"""`python -m benchmarks.kernel CAPTURE…`: JSON lines with the native kernel and without it, on the same captures.

Prints a table of CPU seconds of whole processes (`decode --format json --jobs 1`), the least of the runs, and of bodies
alone: those of messages taken in bulk, decoded and rendered, without headers and lines.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from kafkasniff import inspector as inspecting
from kafkasniff.bulk_messages import REQUEST_HEADER, tell_request, tell_response
from kafkasniff.capture import open_captures
from kafkasniff.inspector import Inspector
from kafkasniff.kafka.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.message_body import decode_body
from kafkasniff.kafka.rendered import AT_ONCE, Renderer
from kafkasniff.native import kernel
from kafkasniff.native.caller import ITEM
from kafkasniff.sinks.jsonl import json_default

Found = tuple[bytes, Any, bool, int, int]
"""The buffer, the API's version, whether it is a request, and where the body is."""


def process_seconds(capture: Path, *, native: bool) -> float:
    """CPU of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "kafkasniff", "decode", "-q", "--format", "json", "--jobs", "1", str(capture)]
    environment = {**os.environ, "KAFKASNIFF_KERNEL": "1" if native else "0"}
    subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def bodies_of(capture: Path) -> list[Found]:
    """The bodies of all messages of a capture that are taken in bulk."""
    found: list[Found] = []

    def request(entry: Any, number: int, name: str | None) -> Any:
        bulk, start, size, length, version = entry[4], *entry[7:10], entry[13]
        begin = start + REQUEST_HEADER + max(length, 0) + version.flexible
        found.append((bulk.buffer, version, True, begin, start + size))
        return tell_request(entry, number, name)

    def response(entry: Any, opened: Any, name: str | None) -> Any:
        bulk, start, size = entry[4], entry[7], entry[8]
        found.append((bulk.buffer, opened[1], False, start + 4 + opened[1].flexible_response, start + size))
        return tell_response(entry, opened, name)

    inspecting.tell_request, inspecting.tell_response = request, response  # type: ignore[assignment]
    try:
        inspector = Inspector(exchanges=False)
        with open_captures([str(capture)], stdin=None) as source:
            for batch in source:
                for _ in inspector.feed_slices(batch):
                    pass
    finally:
        inspecting.tell_request, inspecting.tell_response = tell_request, tell_response
    return found


def by_python(found: list[Found]) -> tuple[float, int]:
    """CPU seconds of decoding and rendering bodies, and bytes of JSON."""
    context, default, size = DecodeContext(DecodeOptions()), json_default("auto"), 0
    begin = time.process_time()
    for data, version, is_request, start, end in found:
        body = decode_body(version.request if is_request else version.response, data, start, end, context)
        size += len(orjson.dumps(body, default=default))
    return time.process_time() - begin, size


def by_kernel(found: list[Found], renderer: Renderer) -> tuple[float, int]:
    """The same by the kernel, some bodies at a time; what they are asked for with is made before, as columns."""
    parts = []
    for first in range(0, len(found), AT_ONCE):
        part = [one for one in found[first : first + AT_ONCE] if one[0] is found[first][0]]
        items = np.zeros(len(part), ITEM)
        programs = [renderer.program(one[1].key, one[1].version, "request" if one[2] else "response") for one in part]
        items["program"] = [0 if program is None else program.address for program in programs]
        items["start"], items["end"] = [one[3] for one in part], [one[4] for one in part]
        parts.append((part[0][0], items))
    size = 0
    begin = time.process_time()
    for data, items in parts:
        size += sum(len(body.json) for body in renderer.bodies(data, items) if body is not None)
    return time.process_time() - begin, size


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel", description=__doc__)
    parser.add_argument("captures", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    found = kernel()
    if found is None:
        raise SystemExit("the native kernel is not there")
    print("| capture | MB | Python, s | kernel, s | ratio | bodies in bulk | Python, µs | kernel, µs | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for capture in options.captures:
        runs: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(options.runs):
            for native, taken in runs.items():
                taken.append(process_seconds(capture, native=native))
        seconds = {native: min(taken) for native, taken in runs.items()}
        row = [capture.stem, f"{capture.stat().st_size / 1e6:,.0f}", f"{seconds[False]:.2f}", f"{seconds[True]:.2f}"]
        row.append(f"{seconds[True] / seconds[False]:.2f}")
        bodies = bodies_of(capture)
        row.append(f"{len(bodies):,}")
        if bodies:
            renderer = Renderer(found, "auto", lambda *_: True)
            renderer.use(DecodeOptions())
            python = min(by_python(bodies)[0] for _ in range(options.runs))
            native_seconds = min(by_kernel(bodies, renderer)[0] for _ in range(options.runs))
            micro = [1e6 * each / len(bodies) for each in (python, native_seconds)]
            row += [f"{micro[0]:.2f}", f"{micro[1]:.2f}", f"{micro[1] / micro[0]:.2f}"]
        else:
            row += ["", "", ""]
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
