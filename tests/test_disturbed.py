"""Captures, crafted and real, with the disturbances of networks and capturing. Where no byte is lost, messages (JSON
lines without numbers and times) stay the same; losses may cost messages but never invent one."""

from __future__ import annotations

import functools
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.baseline.inputs import DISTURBANCES
from tests.choice import fewer, one_in, some_pairs
from tests.conftest import shipped_captures
from tests.craft import damage, disturb, intrude
from tests.craft.outcome import Line, Outcome, Side, files_outcome, packets_outcome
from tests.craft.packet import Packet, ahead, spread
from tests.craft.read import is_cut, read_packets
from tests.craft.samples import mixed
from tests.craft.write import compressed, pcap_bytes, pcapng_bytes, write_pcap, write_rotated

Disturbance = Callable[[Sequence[Packet], Random], list[Packet]]

CRAFTED = "crafted"
SHIPPED = {path.name: path for path in shipped_captures()}
SOURCES = [CRAFTED, *SHIPPED]
# A capture with a snap length has lost bytes already: other file formats are tested with it, but no disturbance is
# harmless.
WHOLE = [source for source in SOURCES if source == CRAFTED or not is_cut(SHIPPED[source])]


def few(start: int) -> list[str]:
    return [CRAFTED, *one_in(9, WHOLE[1:], start)]


def of_all_kinds(kinds: Collection[str], sources: Sequence[str] = WHOLE[1:]) -> list[tuple[str, str]]:
    """The crafted sample with changes of every other kind, and captures with changes in turn."""
    return [*((CRAFTED, kind) for kind in one_in(3, [*kinds])), *some_pairs(sources, kinds, 5, len(sources))]


MISSING = object()

HARMLESS: dict[str, Disturbance] = {
    "reordered": disturb.reordered,
    "reordered-small": damage.composed(disturb.resegmented, functools.partial(disturb.reordered, reach=6)),
    "duplicated": disturb.duplicated,
    "retransmitted": disturb.retransmitted,
    "retransmitted-small": damage.composed(disturb.resegmented, disturb.retransmitted, disturb.reordered),
    "resegmented": disturb.resegmented,
    "single-bytes": disturb.single_bytes,
    "merged": disturb.merged,
    "overlapped": disturb.overlapped,
    "overlapped-small": damage.composed(disturb.resegmented, disturb.overlapped, disturb.reordered),
    "wrapped": disturb.wrapped,
    "wrapped-reordered": damage.composed(disturb.wrapped, disturb.resegmented, disturb.reordered),
    "kept-alive": disturb.kept_alive,
    "kept-alive-wrapped": damage.composed(disturb.wrapped, disturb.kept_alive),
    # Keep-alives last: one that overtakes data brings a garbage byte that arrives first and takes precedence.
    "everything": DISTURBANCES["everything"],
}

INTRUSIONS: dict[str, Disturbance] = {
    "forged-resets": intrude.forged_resets,
    "forged-ends": intrude.forged_ends,
    "out-of-window": intrude.out_of_window,
    "conflicting": intrude.conflicting,
    "conflicting-small": damage.composed(disturb.resegmented, intrude.conflicting),
    # Reordered first: a contradicting segment that overtakes the true one arrives first and takes precedence.
    "all-intrusions": DISTURBANCES["intruded"],
}

DAMAGE: dict[str, Disturbance] = {
    "lossy": damage.lossy,
    "lossy-in-runs": damage.lossy_in_runs,
    "lossy-small": damage.composed(disturb.resegmented, functools.partial(damage.lossy, share=0.02)),
    "lossy-reordered": damage.composed(damage.lossy, disturb.retransmitted, disturb.reordered),
    "lossy-without-handshake": damage.composed(disturb.without_handshake, damage.lossy),
    "unacknowledged": damage.unacknowledged,
    "unacknowledged-small": damage.composed(disturb.resegmented, damage.unacknowledged),
    "snapped": damage.snapped,
    "cut": damage.cut,
    "cut-small": damage.composed(disturb.resegmented, damage.cut),
    "late": damage.late,
    "late-small": damage.composed(disturb.resegmented, damage.late),
    "late-at-request": damage.late_at_request,
    "late-and-lossy": damage.composed(disturb.resegmented, damage.late, damage.lossy),
    "requests-only": damage.requests_only,
    "responses-only": damage.responses_only,
    "requests-only-lossy": damage.composed(damage.requests_only, disturb.resegmented, damage.lossy),
    "responses-only-late": damage.composed(damage.responses_only, disturb.resegmented, damage.late),
}


@functools.cache
def packets_of(source: str) -> list[Packet]:
    return mixed() if source == CRAFTED else read_packets(SHIPPED[source])


@functools.cache
def original(source: str) -> Outcome:
    return packets_outcome(packets_of(source))


def seeded(*parts: object) -> Random:
    return Random(zlib.crc32(repr(parts).encode()))


def kinds(outcome: Outcome) -> Counter[str]:
    return Counter(line["kind"] for line in outcome.problems)


def same(found: dict[Side, list[Line]], expected: dict[Side, list[Line]]) -> None:
    """Fail with the first difference instead of printing both sides."""
    assert sorted(found) == sorted(expected)
    for side, lines in expected.items():
        for number, (one, other) in enumerate(zip(found[side], lines, strict=False)):
            assert one == other, f"line {number} of {side}"
        assert len(found[side]) == len(lines), f"number of lines of {side}"


def is_incomplete(line: Line) -> bool:
    return any(problem["kind"] == "frame-incomplete" for problem in line.get("problems", ()))


def is_orphan(line: Line) -> bool:
    return line["type"] == "response" and line["api_key"] is None and line["body"] is None


def is_part(part: Any, whole: Any) -> bool:
    """`part` contains nothing that differs from `whole` at the same place."""
    if isinstance(part, dict) and part.keys() == {"redacted"}:
        # Whether a value is a secret may follow it: without that, the value is withheld.
        return True
    if isinstance(part, dict) and isinstance(whole, dict):
        # The number of bytes cut off the last batch is all that a cut changes.
        return all(name == "truncated_bytes" or is_part(part[name], whole.get(name, MISSING)) for name in part)
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(is_part, part, whole))
    return bool(part == whole)


def agrees(value: Any, whole: Any, inside: bool = False) -> bool:
    """Both are the same except for the contents of bytes, which may need a message that the capture has lost."""
    if inside and value is None:
        return True
    if isinstance(value, dict) and isinstance(whole, dict):
        wanted = {name for name in whole if not name.startswith("_") or name in value}
        return value.keys() == wanted and all(
            agrees(value[name], whole[name], inside or name.startswith("_")) for name in value
        )
    if isinstance(value, list) and isinstance(whole, list):
        return len(value) == len(whole) and all(
            agrees(one, other, inside) for one, other in zip(value, whole, strict=True)
        )
    return bool(value == whole)


def matches(line: Line, whole: Line) -> bool:
    """`line` is `whole` or its remains: without its request, or without some of its bytes, and marked as such."""
    if line["size"] != whole.get("size"):
        return False
    if is_incomplete(line):
        reported = {key: value for key, value in line.items() if value is not None and key not in {"problems", "raw"}}
        return is_part(reported, whole)
    if is_orphan(line):
        return bool(line["correlation_id"] == whole.get("correlation_id"))
    # If a request is cut before its client id, its response has none either; a token without the preceding handshake
    # has no mechanism.
    ignored = {"problems"} | {key for key in ("client_id", "mechanism") if line.get(key) is None}
    return agrees({**line, **dict.fromkeys(ignored)}, {**whole, **dict.fromkeys(ignored)})


def contained(found: dict[Side, list[Line]], expected: dict[Side, list[Line]]) -> None:
    """`found` contains only elements of `expected`, each once, in the same order.

    Only orphans may be late: it takes time to know that their request is missing. Messages of which only the size is
    left are matched last, with the elements that remain.
    """
    for side, lines in found.items():
        assert side in expected, f"there was no such stream: {side}"
        left = list(expected[side])
        place = 0
        for line in sorted(lines, key=lambda line: line.get("correlation_id", 0) is None):
            ordered = not is_orphan(line) and line.get("correlation_id", 0) is not None
            start = place if ordered else 0
            at = next((at for at in range(start, len(left)) if left[at] and matches(line, left[at])), None)
            assert at is not None, f"of {side} was never sent: {line}"
            left[at] = {}
            if ordered:
                place = at + 1


def known_streams(outcome: Outcome) -> set[tuple[str, int]]:
    """The clients' endpoints of the Kafka connections."""
    ends = {line["client"] for line in outcome.lines if line["type"] != "problem"}
    return {(end.rpartition(":")[0].strip("[]"), int(end.rpartition(":")[2])) for end in ends}


def holes(left: Sequence[Packet]) -> set[tuple[str, int]]:
    """Ends whose stream lacks bytes in `left` between bytes that `left` has."""
    covered: dict[object, list[tuple[int, int]]] = defaultdict(list)
    first: dict[object, int] = {}
    for packet in left:
        if packet.payload:
            start = ahead(packet.seq, first.setdefault(packet.stream, packet.seq))
            covered[packet.stream].append((start, start + len(packet.payload)))
    found = set()
    for stream, spans in covered.items():
        spans.sort()
        reach = spans[0][1]
        for start, end in spans:
            if start > reach:
                found |= {stream[:2], stream[2:]}  # type: ignore[index]
            reach = max(reach, end)
    return found


@pytest.mark.parametrize(("source", "name"), of_all_kinds(HARMLESS))
def test_disturbances_without_losses_change_no_message(source: str, name: str) -> None:
    attempts = (HARMLESS[name](packets_of(source), seeded(source, name, number)) for number in range(9))
    disturbed = next(packets for packets in attempts if packets != packets_of(source))
    outcome = packets_outcome(disturbed)
    same(outcome.messages(), original(source).messages())
    assert kinds(outcome) == kinds(original(source))
    assert outcome.summary.bytes_lost == 0


@pytest.mark.parametrize("source", few(0))
def test_taps_out_of_step_change_no_message(source: str) -> None:
    # A response before its request has a negative latency, which is reported.
    outcome = packets_outcome(disturb.skewed(packets_of(source), seeded(source)))
    same(outcome.messages(drop=["problems"]), original(source).messages(drop=["problems"]))
    assert outcome.summary.bytes_lost == 0


@pytest.mark.parametrize(("source", "name"), of_all_kinds(INTRUSIONS))
def test_foreign_packets_are_ignored_and_reported(source: str, name: str) -> None:
    disturbed = INTRUSIONS[name](packets_of(source), seeded(source, name))
    outcome = packets_outcome(disturbed)
    same(outcome.messages(), original(source).messages())
    assert outcome.summary.bytes_lost == 0
    assert len(disturbed) > len(packets_of(source))
    reported = sum((kinds(outcome) - kinds(original(source))).values())
    # Emitted bytes are not kept, so a later contradiction goes unnoticed.
    if "conflicting" not in name:
        assert reported > 0


@pytest.mark.parametrize("source", few(1))
def test_reused_ports_are_other_connections(source: str) -> None:
    packets = packets_of(source)
    outcome = packets_outcome(disturb.reused(packets, seeded(source)))
    expected = {side: [*lines, *lines] for side, lines in original(source).messages().items()}
    same(outcome.messages(), expected)
    assert outcome.summary.connections == 2 * original(source).summary.connections


@pytest.mark.parametrize("source", few(2))
def test_a_missing_handshake_changes_no_message(source: str) -> None:
    outcome = packets_outcome(disturb.without_handshake(packets_of(source), seeded(source)))
    whole = original(source)
    unknown = sum(any(one["kind"] == "version-unknown" for one in line.get("problems", ())) for line in whole.lines)
    if unknown:
        # If a stream begins with an unknown version, nothing shows that it begins there.
        contained(outcome.messages(), whole.messages())
        assert outcome.summary.requests >= whole.summary.requests - unknown
        assert outcome.summary.responses >= whole.summary.responses - unknown
    else:
        same(outcome.messages(), whole.messages())


@pytest.mark.parametrize(("source", "name"), of_all_kinds(DAMAGE))
def test_losses_invent_no_message(source: str, name: str) -> None:
    packets = packets_of(source)
    whole = original(source)
    for seed in range(fewer(1, 6) if source == CRAFTED else 1):
        damaged = DAMAGE[name](packets, seeded(source, name, seed))
        outcome = packets_outcome(damaged)
        contained(outcome.messages(), whole.messages())
        if holes(damaged) & known_streams(outcome):
            reported = outcome.problems or any(line["problems"] for line in outcome.lines if "problems" in line)
            assert reported, "bytes are missing between bytes, and nothing says so"
            assert outcome.summary.bytes_lost > 0
        assert outcome.summary.bytes_stream >= outcome.summary.bytes_decoded + outcome.summary.bytes_lost


@pytest.mark.parametrize("source", few(3))
def test_requests_alone_are_complete(source: str) -> None:
    outcome = packets_outcome(damage.requests_only(packets_of(source), seeded(source)))
    expected = original(source).messages(drop=["problems"])
    found = outcome.messages(drop=["problems"])
    assert not [side for side in found if side[2] == "response"]
    same(found, {side: lines for side, lines in expected.items() if side[2] == "request"})


# -- the same packets in other files

Written = Callable[[Sequence[Packet], Path], list[Path]]


def as_pcap(link: str, *, nanoseconds: bool, order: str) -> Written:
    return lambda packets, folder: [write_pcap(folder / "v.pcap", packets, link, nanoseconds=nanoseconds, order=order)]


def as_bytes(make: Callable[[Sequence[Packet]], bytes]) -> Written:
    def write(packets: Sequence[Packet], folder: Path) -> list[Path]:
        # The content decides the format, not the name.
        (folder / "capture").write_bytes(make(packets))
        return [folder / "capture"]

    return write


def as_pcapng(order: str) -> Written:
    return as_bytes(lambda packets: pcapng_bytes(packets, ("ethernet", "raw", "sll"), order=order, sections=2))


def as_compressed(form: str) -> Written:
    return as_bytes(lambda packets: compressed(pcap_bytes(packets), form))


def as_rotated(files: int, step: int = 1) -> Written:
    """The order of arguments matters only for packets with the same time."""
    return lambda packets, folder: write_rotated(folder, spread(packets), files)[::step]


FILES: dict[str, Written] = {
    **{
        link: as_pcap(link, nanoseconds=number % 2 == 0, order="<>"[number % 3 == 0])
        for number, link in enumerate(
            ("ethernet", "vlan", "qinq", "sll", "sll2", "null", "null-big-endian", "loop", "raw", "ethernet-padded")
        )
    },
    "microseconds": as_pcap("ethernet", nanoseconds=False, order=">"),
    "pcapng": as_pcapng("<"),
    "pcapng-big-endian": as_pcapng(">"),
    **{form: as_compressed(form) for form in ("gzip", "gzip-members", "zstd", "lz4")},
    **{f"{files}-files": as_rotated(files) for files in (2, 7)},
    "3-files-backwards": as_rotated(3, -1),
}


@pytest.mark.parametrize(("source", "form"), of_all_kinds(FILES, list(SHIPPED)))
def test_files_of_any_kind(source: str, form: str, tmp_path: Path) -> None:
    outcome = files_outcome(FILES[form](packets_of(source), tmp_path))
    same(outcome.messages(), original(source).messages())
    assert kinds(outcome) == kinds(original(source))
