"""Phrases for the decoded share of the traffic, the same in all commands."""

from __future__ import annotations

from kafkasniff.analysis.detectors.wording import percent, plural
from kafkasniff.analysis.visibility import HIGH, Undecoded, VisibleTraffic
from kafkasniff.sinks.summaries.phrases import amount


def decoded_share(visible: VisibleTraffic) -> str:
    """`only 37%`, `none`, `100%`."""
    if not visible.share:
        return "none"
    return f"{'' if visible.is_high else 'only '}{percent(visible.share)}"


def reasons_text(visible: VisibleTraffic) -> str:
    """`60% TLS without keys (7 connections), 3% bytes missing in the capture`."""
    return ", ".join(_reason(one) for one in visible.undecoded)


def all_clear(visible: VisibleTraffic | None, *, filtered: bool = False) -> str:
    """What to say if nothing was found; `filtered`: among the exchanges that filters select."""
    if visible is None or visible.is_high:
        return "no problems found"
    if visible.share is None:
        return "no exchanges match the filters" if filtered else "no Kafka traffic"
    if not visible.bytes_decoded:
        return "nothing could be decoded"
    if visible.share >= HIGH:
        return "no problems found in the readable part"
    return f"nothing found in the {percent(visible.share)} of the traffic that could be decoded"


def visibility_lines(visible: VisibleTraffic | None) -> list[str]:
    """One line on the total and one per reason with advice; none if nearly everything was decoded."""
    if visible is None or not visible.undecoded or (visible.is_high and not visible.is_one_sided):
        return []
    lines = []
    if visible.share is not None:
        whole = "the readable part" if visible.unmeasured else "the traffic"
        lines.append(
            f"decoded: {percent(visible.share)} of {whole}, {amount(visible.bytes_decoded)} of "
            f"{amount(visible.bytes)}, on {visible.connections_decoded:,} of {visible.connections:,} connections"
        )
    return [*lines, *(undecoded_line(one) for one in visible.undecoded)]


def undecoded_line(one: Undecoded) -> str:
    """One reason with advice."""
    return f"not decoded: {_reason(one)}; {one.advice}"


def _reason(one: Undecoded) -> str:
    where = f" ({plural(one.connections, 'connection')})" if one.connections else ""
    return f"{'' if one.share is None else f'{percent(one.share)} '}{one.what}{where}"
