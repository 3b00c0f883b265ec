"""`kafkasniff live` while packets come faster and faster: `python -m benchmarks.live_load --help`, README.md.

tcpreplay sends a part of form C or E at each rate. A rate is held when no packet is lost, every request that `decode`
finds in that part is shown, nothing is skipped, and the program is at work for at most half a second afterwards.

Needs Linux, root, iproute2, tcpreplay, and tshark where it is compared. Everything happens in a network namespace that
is gone with the process. The program has one core of its own, and the sender has the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.generate import DATA
from benchmarks.live_network import LISTENS, SENDS, NetworkError, counters, leave_for_own_network, program
from benchmarks.live_run import Offered, Result, ToolError, run
from benchmarks.live_tools import TOOLS, Target, make_tools
from benchmarks.pages import compile_package, hardware, load_average, table, today, versions, write_section
from benchmarks.pcap_files import RECORD_HEADER, packet_places
from benchmarks.processes import CommandFailedError
from benchmarks.small_messages import BROKER_PORT, write
from benchmarks.timing import timed
from benchmarks.trouble_messages import write_trouble

SECTION: Final = "live-load"
RATES: Final = "20000,40000,80000,120000,160000,200000,250000,300000"
TARGET_RATE: Final = 200_000.0
"""Packets a second that have to be held."""
PROMPT_S: Final = 0.5
"""A program keeps up when it is at work no longer than this after the load."""
LATE: Final = 3.0
SLACK_S: Final = 30.0
"""A load may take `LATE` times what it should, and this long, until it is given up."""
READ_BYTES: Final = 1 << 24
HEAD: Final = ("form", "program", "packets/s", "lost", "shown", "lag s", "CPU s", "CPU µs/packet", "peak MB", "held")


class LoadError(Exception):
    """A load did not go through; the message says why."""


@dataclasses.dataclass(frozen=True)
class Replay:
    """The beginning of a capture, sent by tcpreplay."""

    form: str
    rate: float
    """Packets a second."""
    seconds: float
    path: Path
    packets: int
    requests: int

    @property
    def limit_s(self) -> float:
        """It does not take longer."""
        return self.seconds * LATE + SLACK_S

    def send(self) -> Offered:
        """Send all of it. Raises LoadError."""
        before = counters(LISTENS)
        command = [program("tcpreplay"), "-i", SENDS, "--quiet", "--no-flow-stats", "--pps", f"{self.rate:g}"]
        try:
            done = subprocess.run(
                [*command, str(self.path)], capture_output=True, text=True, timeout=self.limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise LoadError(f"tcpreplay was not through after {self.limit_s:.0f} s") from None
        sent = re.search(r"Actual: (\d+) packets \(\d+ bytes\) sent in ([\d.]+) seconds", done.stdout)
        if done.returncode != 0 or sent is None:
            raise LoadError(f"tcpreplay: {(done.stdout + done.stderr)[-1000:]}")
        arrived = counters(LISTENS) - before
        lost = max(0, self.packets - arrived.packets) + arrived.dropped
        return Offered(float(sent[2]), arrived.packets, lost, self.requests)


def replays(form: str, rates: Sequence[float], seconds: float, connections: int, folder: Path) -> list[Replay]:
    """Parts of one capture, which is made; no part is sent twice to a program. Raises CommandFailedError."""
    whole = folder / f"{form}.pcap"
    made = write if form == "C" else write_trouble
    made(whole, connections, int(max(rates) * seconds) + 3 * connections)
    data = whole.read_bytes()
    places, lengths = packet_places(data)
    found = []
    for rate in rates:
        last = min(int(rate * seconds), len(places)) - 1
        path = folder / f"{form}-{rate:g}.pcap"
        path.write_bytes(memoryview(data)[: int(places[last] + RECORD_HEADER + lengths[last])])
        found.append(Replay(form, rate, seconds, path, last + 1, _requests(path, folder / "decoded")))
    whole.unlink()
    return found


def _requests(path: Path, output: Path) -> int:
    timed([sys.executable, "-m", "kafkasniff", "decode", "--quiet", "--format", "json", str(path)], output)
    with output.open("rb") as lines:
        count = sum(line.startswith(b'{"type":"request"') for line in lines)
    output.unlink()
    return count


def separate_cores() -> int | None:
    """A core for the program; this process and all that it starts keep to the others. None where there is one only."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        return None
    os.sched_setaffinity(0, set(cores[1:]))
    return cores[0]


def is_held(found: Result) -> bool:
    """Whether nothing of a load was lost on its way or in the program, skipped, or late."""
    reported, offered = found.reported, found.offered
    if reported.lost or offered.lost_before or not found.caught_up or found.killed or found.behind_s > PROMPT_S:
        return False
    if any(kind.startswith("live-") for kind in reported.problems):
        return False
    return reported.requests is None or reported.requests >= offered.requests


def row(form: str, found: Result) -> list[object]:
    """A line of the table."""
    reported, offered = found.reported, found.offered
    if reported.kept is None:
        shown, whole = reported.requests or 0, offered.requests
    else:
        shown, whole = reported.kept, offered.packets
    # 100% means all of them.
    share = "100%" if shown == whole else f"{min(shown / max(1, whole), 0.9999):.2%}"
    return [
        *(form, found.tool, f"{offered.packets / offered.seconds:,.0f}"),
        "?" if reported.lost is None else f"{reported.lost + offered.lost_before:,}",
        f"{share} of {whole:,}",
        f"{'' if found.caught_up else '>'}{found.behind_s:.1f}",
        *(f"{found.usage.cpu_s:.1f}", f"{found.usage.cpu_s / max(1, offered.packets) * 1e6:.2f}"),
        *(f"{found.usage.peak / 1e6:.0f}", "yes" if is_held(found) else "no"),
    ]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.live_load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--forms", default="C,E", help="C, E or both [C,E]")
    made.add_argument("--tools", default="text,json", help=f"of {', '.join(TOOLS)} [text,json]")
    made.add_argument("--rates", default=RATES, help=f"packets/s, rising [{RATES}]")
    made.add_argument("--seconds", type=float, default=10, help="how long a load lasts [10]")
    made.add_argument("--drain", type=float, default=15, help="seconds after it to catch up in [15]")
    made.add_argument("--connections", type=int, default=2000, help="[2000]")
    made.add_argument("--all-rates", action="store_true", help="continue after a rate that is not held")
    made.add_argument("--option", action="append", default=[], help="passed to `live`, as --option=--buffer=256")
    made.add_argument("--data", type=Path, default=DATA, help="folder for captures and runs")
    made.add_argument("--report", type=Path, help="write the section of this page, such as benchmarks/RESULTS.md")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    options = made.parse_args(arguments)
    forms, names = options.forms.split(","), options.tools.split(",")
    try:
        rates = sorted(float(rate) for rate in options.rates.split(","))
    except ValueError:
        made.error(f"--rates {options.rates}: numbers with commas between them")
    if min(*rates, options.seconds, options.drain, options.connections) <= 0:
        made.error("--rates, --seconds, --drain and --connections must be positive")
    if set(forms) - {"C", "E"} or set(names) - set(TOOLS):
        made.error(f"--forms: C, E or both; --tools: of {', '.join(TOOLS)}")
    compile_package()
    folder = options.data.resolve() / "live"
    folder.mkdir(parents=True, exist_ok=True)
    notes = [f"{today()}; load average at the start {load_average():.2f}", hardware(), versions()]
    rows, verdicts = [], []
    try:
        leave_for_own_network()
        loads = {form: replays(form, rates, options.seconds, options.connections, folder) for form in forms}
        core = separate_cores()
        for form in forms:
            for tool in make_tools(names, options.option):
                held, beyond = 0.0, False
                for load in loads[form]:
                    if beyond and not options.all_rates:
                        break
                    target = Target(LISTENS, (BROKER_PORT,))
                    limits = {"limit_s": load.limit_s + options.drain, "drain_s": options.drain}
                    found = run(tool, target, load.send, folder / "run", **limits, core=core)
                    beyond = beyond or not is_held(found)
                    held = held if beyond else found.offered.packets / found.offered.seconds
                    rows.append(row(form, found))
                    print("  ".join(map(str, rows[-1])), flush=True)
                met = "yes" if held >= TARGET_RATE else "no"
                verdicts.append(f"{form}, {tool.name}: {held:,.0f} packets/s held; ≥ {TARGET_RATE:,.0f}: {met}")
    except (CommandFailedError, LoadError, NetworkError, ToolError) as error:
        made.error(str(error))
    print(*verdicts, sep="\n")
    if options.report:
        facts = "\n".join(f"- {line}" for line in (*notes, *verdicts))
        write_section(SECTION, "\n\n".join(["## Live under load", facts, table(HEAD, rows)]), options.report)
    return int(any(line.endswith(": no") for line in verdicts))


def end_by_signal(signum: int, _frame: object) -> None:
    """As Ctrl-C does: what was started is ended, too."""
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end_by_signal)
    sys.exit(main())
