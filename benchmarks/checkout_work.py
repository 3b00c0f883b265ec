"""What `benchmarks.targets` runs in the Python of each checkout: `python -P checkout_work.py bodies|read FILE`.

Prints its figures as JSON. It imports only kafkasniff, which may be older than the native kernel: then bodies
are decoded and rendered as `decode --format json` did at that time.
"""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

RUNS: Final = 3
"""Times that all bodies are read; the least counts."""

AT_ONCE: Final = 128
"""Bodies that the kernel is given in one call."""

Kind = tuple[int, int, bool]
"""API key, version, and whether it is a request."""

Place = tuple[int, int, int]
"""Where a body is: index of its kind, start, end."""

Wanted = tuple[bytes, list[Kind], list[Place]]
"""All bodies in one buffer, all kinds, and the places of the bodies."""


def bodies(path: Path) -> dict[str, Any]:
    """CPU seconds of decoding and rendering all bodies of a file, bytes of JSON, and how many were skipped.

    Skipped bodies have more to report (error codes, problems); the product decodes their whole message again.
    """
    wanted: Wanted = pickle.loads(path.read_bytes())
    found = None
    try:
        from kafkasniff.native import kernel  # noqa: PLC0415
    except ImportError:
        pass
    else:
        found = kernel()
    runs = [_by_python(*wanted) if found is None else _by_kernel(found, *wanted) for _ in range(RUNS)]
    seconds, size, skipped = min(runs)
    return {"seconds": seconds, "bytes": size, "skipped": skipped, "kernel": found is not None}


def _module(name: str) -> Any:
    """A module below `kafkasniff.kafka`; older checkouts have all of them in that folder itself."""
    try:
        return importlib.import_module(f"kafkasniff.kafka.{name}")
    except ModuleNotFoundError:
        return importlib.import_module(f"kafkasniff.kafka.{name.rpartition('.')[2]}")


def _python_way(data: bytes, kinds: Sequence[Kind]) -> Callable[[Place], int | None]:
    """Decodes and renders one body; returns its size as JSON in bytes, None if there is more to report."""
    import orjson  # noqa: PLC0415

    from kafkasniff.sinks.jsonl import json_default  # noqa: PLC0415

    decode_body = _module("messages.message").decode_body
    planning, reading = _module("messages.message_plan"), _module("schema.context")
    plans = [
        (planning.request_plan if is_request else planning.response_plan)(key, version)
        for key, version, is_request in kinds
    ]
    context, default, dumps = reading.DecodeContext(reading.DecodeOptions()), json_default("auto"), orjson.dumps

    def size_of(place: Place) -> int | None:
        kind, start, end = place
        body = decode_body(plans[kind], data, start, end, context)
        return None if body is None else len(dumps(body, default=default))

    return size_of


def _by_python(data: bytes, kinds: Sequence[Kind], places: Sequence[Place]) -> tuple[float, int, int]:
    size_of = _python_way(data, kinds)
    begin = time.process_time()
    sizes = [size_of(place) for place in places]
    seconds = time.process_time() - begin
    return seconds, sum(size for size in sizes if size is not None), sizes.count(None)


def _by_kernel(kernel: Any, data: bytes, kinds: Sequence[Kind], places: Sequence[Place]) -> tuple[float, int, int]:
    """Some bodies at a time; Python reads those that the kernel does not.

    The columns of programs and positions are made before the clock starts.
    """
    import numpy as np  # noqa: PLC0415

    from kafkasniff.kafka.messages.rendered import Renderer  # noqa: PLC0415
    from kafkasniff.kafka.schema.context import DecodeOptions  # noqa: PLC0415
    from kafkasniff.native.caller import ITEM  # noqa: PLC0415

    size_of = _python_way(data, kinds)
    renderer = Renderer(kernel, "auto", lambda *_: True)
    renderer.use(DecodeOptions())
    programs = [
        renderer.program(key, version, "request" if is_request else "response") for key, version, is_request in kinds
    ]
    addresses = [0 if program is None else program.address for program in programs]
    items = np.zeros(len(places), ITEM)
    items["program"] = [addresses[kind] for kind, _, _ in places]
    items["start"], items["end"] = [start for _, start, _ in places], [end for _, _, end in places]
    sizes: list[int | None] = []
    begin = time.process_time()
    while len(sizes) < len(items):
        at = len(sizes)
        # The kernel may stop early, when its output is full.
        chosen = items[at : at + AT_ONCE]
        made = renderer.bodies(data, chosen, chosen["start"].tolist())
        # Bodies of earlier versions may be odd.
        sizes += [
            size_of(place) if body is None or getattr(body, "odd", None) is not None else len(body.json)
            for place, body in zip(places[at : at + len(made)], made, strict=True)
        ]
    seconds = time.process_time() - begin
    return seconds, sum(size for size in sizes if size is not None), sizes.count(None)


def read(path: Path) -> dict[str, Any]:
    """Every message of a capture through the library, and every top-level field of its body."""
    import kafkasniff  # noqa: PLC0415

    messages = fields = 0
    for exchange in kafkasniff.read(str(path)):
        for message in (exchange.request, exchange.response):
            if message is not None:
                messages += 1
                if message.body is not None:
                    fields += sum(1 for _ in message.body.values())
    return {"messages": messages, "fields": fields}


def about() -> dict[str, Any]:
    """Where kafkasniff is installed, and whether it has the kernel."""
    import kafkasniff  # noqa: PLC0415

    try:
        from kafkasniff.native import kernel  # noqa: PLC0415
    except ImportError:
        has_kernel = False
    else:
        has_kernel = kernel() is not None
    return {"folder": str(Path(kafkasniff.__file__).resolve().parent), "kernel": has_kernel}


def main() -> None:
    """Run what the arguments ask for."""
    what, *rest = sys.argv[1:]
    done = about() if what == "about" else {"bodies": bodies, "read": read}[what](Path(rest[0]))
    print(json.dumps(done))


if __name__ == "__main__":
    main()
