"""Makes the benchmark's captures in `benchmarks/data`: `python -m benchmarks.generate --help`.

Beside each capture stands a `.json` file with the brokers' ports (tshark has to be told) and what it is known to hold.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from benchmarks import small_messages
from benchmarks.resegment import resegment
from tests.craft.samples import mixed
from tests.craft.write import write_pcap

DATA: Final = Path(__file__).parent / "data"

FORMS: Final = {
    "A": "real client traffic, all codecs, in large segments (records from loopback: needs root and tcpdump)",
    "B": "form A cut into segments of 1,448 bytes (needs A)",
    "C": "many connections of small messages",
    "start": "100 packets, for the time until the first line",
}


def _done(path: Path, ports: list[int], **facts: Any) -> None:
    path.with_suffix(".json").write_text(json.dumps({"ports": ports, **facts}, indent=1) + "\n")
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    described = "; ".join(f"{form}: {what}" for form, what in FORMS.items())
    parser.add_argument("forms", nargs="*", help=f"{described} (default: all)")
    parser.add_argument("--megabytes", type=int, default=120, help="size of form A")
    parser.add_argument("--packets", type=int, default=1_000_000, help="packets of form C")
    parser.add_argument("--connections", type=int, default=2000, help="connections of form C")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--missing", action="store_true", help="only those that are not there yet")
    parser.add_argument("--data", type=Path, default=DATA, help="folder for the captures")
    options = parser.parse_args()
    if unknown := set(options.forms) - set(FORMS):
        parser.error(f"no such form: {', '.join(sorted(unknown))}")
    data: Path = options.data
    # The .json comes last: without it, making the capture was interrupted.
    forms = [
        form for form in options.forms or FORMS if not (options.missing and (data / form).with_suffix(".json").exists())
    ]
    data.mkdir(parents=True, exist_ok=True)
    large, small_segments = data / "A.pcap", data / "B.pcap"
    if "start" in forms:
        _done(write_pcap(data / "start.pcap", mixed()[:100], nanoseconds=True), [9092])
    if "C" in forms:
        path = data / "C.pcap"
        facts = small_messages.write(path, options.connections, options.packets, options.seed)
        _done(path, [small_messages.BROKER_PORT], connections=options.connections, **facts)
    if "A" in forms:
        # Here, because the other forms do without confluent-kafka.
        from benchmarks import large_segments  # noqa: PLC0415

        ports = large_segments.record(large, options.megabytes, options.seed)
        _done(large, ports)
    if "B" in forms:
        if not large.exists():
            parser.error("form B is made from form A, which is not there")
        resegment(large, small_segments)
        _done(small_segments, json.loads(large.with_suffix(".json").read_text())["ports"])


if __name__ == "__main__":
    main()
