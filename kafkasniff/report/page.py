"""The page: one self-contained file that may load nothing.

Text is escaped by Jinja, charts come from `svg`. The policy in the page's head allows only the page's own style and
script, by their hashes. So anything that slipped through would not run.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kafkasniff.analysis.detectors import SEVERITIES, Evidence, Finding
from kafkasniff.analysis.detectors.finding import Numbers
from kafkasniff.analysis.detectors.undecoded import all_clear, visibility_lines
from kafkasniff.analysis.detectors.wording import plural
from kafkasniff.enrich.hosts import Hosts
from kafkasniff.errors import MissingExtraError
from kafkasniff.report.answer_tables import (
    ALWAYS,
    AnswerTable,
    ReportColumn,
    address,
    count_of,
    first_exchange,
    meaning_of,
    moment,
    overview_tables,
    rebalance_columns,
    spans_days,
)
from kafkasniff.report.charts import Chart, charts_of
from kafkasniff.report.contents import MAX_ROWS, Contents
from kafkasniff.report.ladder import PageLink, Talk, anchors_of, connection_label, exchange_label, ladders_of
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import cut, printable, word
from kafkasniff.text.times import clock_time, date_of, duration

MAX_PAGE: Final = 16 << 20
"""Maximum size of a page in bytes: the sum of the bounds on its tables, charts and steps."""
MAX_SOURCES: Final = 20
"""Maximum number of names of captures and folders."""
OPEN_FINDINGS: Final = 5
"""Findings whose text is expanded from the start; none of them are notes if there are more."""
MAX_SENTENCE: Final = 600
"""Maximum number of characters of a sentence of a finding, or of the name of a source."""
MAX_NOTES: Final = 50
"""Maximum number of caveats: unknown or dropped data."""
MAX_VALUE: Final = 400
"""Maximum number of characters of a value of a finding."""
MAX_VALUES: Final = 20
"""Maximum number of values of a finding."""

_WORDS: Final = {
    "unanswered": "no response",
    "p50": "median",
    "record p50": "record, median",
    "p90": "90%",
    "p99": "99%",
}
"""Longer headings than on the screen."""
_NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Units of durations at the end of a value's name."""
_FOLDER: Final = Path(__file__).parent / "page"


class _Tile(msgspec.Struct, frozen=True):
    """A figure at the top."""

    name: str
    value: str
    bad: bool = False


class _Verdict(msgspec.Struct, frozen=True):
    """What happened, in one sentence."""

    kind: str
    """A severity, or clear."""
    text: str
    more: str


class _Shown(msgspec.Struct, frozen=True):
    """A finding as shown on the page."""

    anchor: str
    open: bool
    finding: Finding
    time: str
    subject: list[tuple[str, str]]
    values: list[tuple[str, str]]
    evidence: list[tuple[PageLink, str]]
    """Links to its evidence with notes; a link without an anchor is plain text: that connection is not shown."""


def page_of(
    contents: Contents,
    sources: Sequence[str],
    *,
    broken: bool = False,
    hosts: Hosts | None = None,
    numbers: Numbers | None = None,
) -> bytes:
    """The page. `sources`: the captures and folders as given; `broken`: one of them was truncated or damaged.

    `hosts`: names and racks of addresses; `numbers`: numbers of exchanges and connections of captures, as in `decode`.
    Raises MissingExtraError if a package is not installed.
    """
    try:
        import jinja2
        import markupsafe
    except ImportError:
        raise MissingExtraError("report", "jinja2", "report") from None
    style, script = (_file(name) for name in ("page.css", "page.js"))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    answer, numbers = contents.answer, Numbers() if numbers is None else numbers
    days = spans_days(answer)
    charts = charts_of(contents)
    notes = contents.notes

    def safe(text: str) -> str:
        """Text of our own, or text made safe."""
        return markupsafe.Markup(text)

    def pictured(chart: Chart) -> dict[str, Any]:
        # Output of `svg.cleaned` needs no escaping.
        return {**msgspec.structs.asdict(chart), "pictures": [safe(picture) for picture in chart.pictures]}

    text = environment.get_template("page.html.jinja").render(
        policy=_policy(style, script),
        style=safe(style),
        script=safe(script),
        name=_name(sources),
        sources=[cut(printable(source), MAX_SENTENCE) for source in sources[:MAX_SOURCES]],
        more_sources=max(len(sources) - MAX_SOURCES, 0),
        when=_when(contents),
        broken=broken,
        verdict=_verdict(contents),
        tiles=_tiles(contents),
        undecoded=visibility_lines(answer.visibility),
        findings=_findings(contents, contents.findings, numbers, "finding", days=days),
        more_findings=contents.more_findings,
        severities=[(one, sum(each.severity == one for each in contents.findings)) for one in SEVERITIES],
        charts={section: [pictured(chart) for chart in some] for section, some in charts.items()},
        tables=page_tables(contents, hosts),
        words=_WORDS,
        ladders=ladders_of(contents.shown, contents.findings, hosts, numbers),
        numbered=bool(numbers),
        more_connections=contents.connections - len(contents.shown),
        notes=[cut(printable(note), MAX_SENTENCE) for note in notes[:MAX_NOTES]],
        more_notes=max(len(notes) - MAX_NOTES, 0),
    )
    data = text.encode("utf-8", "replace")
    assert len(data) <= MAX_PAGE, "the page exceeds its size bound"
    return data


def page_tables(contents: Contents, hosts: Hosts | None = None) -> dict[str, AnswerTable | None]:
    """The tables by name; None for those without rows."""
    answer, days = contents.answer, spans_days(contents.answer)
    tables = [
        *overview_tables(answer, contents.identities, _errors(days), top=MAX_ROWS, hosts=hosts),
        AnswerTable(
            "rebalances", "Rebalances", contents.generations, rebalance_columns(days), contents.more_generations
        ),
    ]
    # A page has room for all columns.
    return {
        table.name: table._replace(columns=[column for column in table.filled if column.until == ALWAYS])
        if table.rows
        else None
        for table in tables
    }


def _errors(days: bool) -> list[ReportColumn]:
    return [
        ReportColumn("code", lambda row: "" if row.code is None else str(row.code), number=True),
        ReportColumn("name", lambda row: row.name or ""),
        ReportColumn("count", count_of("count"), number=True),
        ReportColumn("meaning", meaning_of),
        ReportColumn("in", lambda row: ", ".join(word(one) for one in row.apis)),
        ReportColumn("first", lambda row: first_exchange(row, days=days)),
    ]


def _file(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _policy(style: str, script: str) -> str:
    """Content-Security-Policy (CSP level 3): nothing is loaded, sent or run except for these hashes."""

    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    ours = f"style-src {source(style)}; script-src {source(script)}"
    return f"default-src 'none'; {ours}; base-uri 'none'; form-action 'none'"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _verdict(contents: Contents) -> _Verdict:
    """What happened: the first finding that is not a note, or that there is none."""
    troubles = [finding for finding in contents.findings if finding.severity != "note"]
    notes = len(contents.findings) - len(troubles)
    if not troubles:
        more = f"{plural(notes, 'note')} below." if notes else ""
        return _Verdict("clear", _sentence(all_clear(contents.answer.visibility)), more)
    others = [
        plural(number, f"more {severity}")
        for severity in SEVERITIES[:2]
        if (number := sum(finding.severity == severity for finding in troubles[1:]))
    ]
    more = f"{' and '.join(others)} below." if others else ""
    return _Verdict(troubles[0].severity, _sentence(cut(troubles[0].title, MAX_SENTENCE)), more)


def _name(sources: Sequence[str]) -> str:
    first = cut(printable(Path(sources[0]).name or sources[0]), MAX_SENTENCE) if sources else ""
    return f"{first} and {len(sources) - 1} more" if len(sources) > 1 else first


def _when(contents: Contents) -> str:
    first, last = contents.answer.first, contents.answer.last
    if first is None or last is None:
        return "without times"
    end = clock_time(last) if date_of(first) == date_of(last) else f"{date_of(last)} {clock_time(last)}"
    return f"{date_of(first)} {clock_time(first)} to {end} UTC"


def _tiles(contents: Contents) -> list[_Tile]:
    answer = contents.answer
    counts = answer.exchanges
    tiles = []
    if answer.first is not None and answer.last is not None:
        tiles.append(_Tile("time", duration(answer.last - answer.first)))
    tiles += [
        _Tile("exchanges", f"{counts.exchanges:,}"),
        _Tile("with errors", f"{counts.with_errors:,}", counts.with_errors > 0),
        _Tile("unanswered", f"{counts.unanswered:,}", counts.unanswered > 0),
        *([_Tile("responses not captured", f"{counts.lost:,}", True)] if counts.lost else []),
        _Tile("from clients", amount(counts.request_bytes)),
        _Tile("from brokers", amount(counts.response_bytes)),
    ]
    if answer.connections is not None:
        seen = answer.connections
        tiles += [
            _Tile("connections", f"{seen.kafka:,}"),
            _Tile("retransmits", f"{seen.retransmits:,}", seen.retransmits > 0),
            _Tile("bytes lost", amount(seen.bytes_lost), seen.bytes_lost > 0),
        ]
        if seen.not_kafka or seen.undecided:
            tiles.append(_Tile("other connections", f"{seen.not_kafka + seen.undecided:,}"))
    return tiles


def _findings(
    contents: Contents, findings: Sequence[Finding], numbers: Numbers, name: str, *, days: bool
) -> list[_Shown]:
    """Findings as shown, with anchors that begin with `name`."""
    anchors = anchors_of(contents.shown)
    few = len(findings) <= OPEN_FINDINGS
    return [
        _Shown(
            anchor=f"{name}-{number}",
            open=number <= OPEN_FINDINGS and (few or finding.severity != "note"),
            finding=_cut(finding),
            time=_span(finding, days=days),
            subject=_pairs(finding.subject),
            values=_pairs(_more(finding)),
            evidence=[
                _evidence(evidence, anchors, contents.witnesses, numbers, days=days)
                for evidence in _without_repeats(finding.evidence)
            ],
        )
        for number, finding in enumerate(findings, 1)
    ]


def _more(finding: Finding) -> dict[str, Any]:
    """The values that neither sentences nor subject nor count contain; sentences say what holds (True).

    Lists of structures are for programs: the page lists the exchanges themselves.
    """
    said = " ".join(map(str, (finding.title, finding.meaning, *finding.subject.values())))
    known: list[Any] = [finding.count, 1, True, *finding.subject.values()]

    def is_new(value: Any) -> bool:
        if isinstance(value, list | tuple):
            return any(not isinstance(one, dict) and is_new(one) for one in value)
        if isinstance(value, int | float):
            return value not in known
        return not any(re.search(rf"(?<!\w){re.escape(one)}(?!\w)", said) for one in (str(value), word(str(value))))

    who = {"worst_clients"} if finding.values.get("clients") == 1 else set()
    return {name: value for name, value in finding.values.items() if name not in who and is_new(value)}


def _cut(finding: Finding) -> Finding:
    """A finding with shortened sentences."""
    texts = {name: cut(getattr(finding, name), MAX_SENTENCE) for name in ("detector", "title", "meaning", "advice")}
    return msgspec.structs.replace(finding, **texts)


def _span(finding: Finding, *, days: bool) -> str:
    first, last = (moment(one, days=days) for one in (finding.first, finding.last))
    return first if first == last or not last else f"{first} to {last}"


def _pairs(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Values by name, safe to show; what is unknown, empty or does not hold is omitted."""
    said = [(name, value) for name, value in values.items() if value or (value == 0 and value is not False)]
    return [_labelled(word(name), value) for name, value in said[:MAX_VALUES]]


# What the name of a value does not say by itself.
_LABELS: Final = {"settles": "to be solved by", "worst_clients": "clients with most of them"}


def _labelled(name: str, value: Any) -> tuple[str, str]:
    """A name without its unit, and the value with it."""
    label, (stem, _, unit) = _LABELS.get(name, name.replace("_", " ")), name.rpartition("_")
    if value is True:
        return label, ""
    if isinstance(value, int | float):
        if unit in _NANOSECONDS:
            return stem.replace("_", " "), duration(round(value * _NANOSECONDS[unit]))
        if unit == "bytes":
            return label, amount(round(value))
        if name == "share":
            return label, f"{value:.0%}"
    return label, _value(value)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return cut(", ".join(f"{word(one)}: {_value(value[one])}" for one in list(value)[:MAX_VALUES]), MAX_VALUE)
    if isinstance(value, list | tuple):
        return cut(", ".join(_value(one) for one in value[:MAX_VALUES]), MAX_VALUE)
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return word(value, MAX_VALUE) if isinstance(value, str) else cut(printable(str(value)), MAX_VALUE)


def _without_repeats(evidence: Sequence[Evidence]) -> Iterator[Evidence]:
    """Each note once, at the first exchange that has it."""
    seen = {""}
    for one in evidence:
        yield one if one.note not in seen else msgspec.structs.replace(one, note="")
        seen.add(one.note)


def _evidence(
    evidence: Evidence, anchors: dict[int, str], talks: dict[int, Talk], numbers: Numbers, *, days: bool
) -> tuple[PageLink, str]:
    anchor = anchors.get(evidence.connection_id, "")
    if evidence.exchange_id is None:
        where = connection_label(evidence.connection_id, numbers) or "connection"
        if evidence.exchange is not None:
            where += f", #{evidence.exchange}"
    else:
        where = exchange_label(evidence.connection_id, evidence.exchange_id, numbers)
        anchor = anchor and f"{anchor}-{evidence.exchange_id}"
    talk = talks.get(evidence.connection_id)
    client = "" if talk is None else address(talk.client_ip, talk.client_port)
    notes = " ".join(
        one
        for one in (
            client and f"of {client}",
            moment(evidence.time_ns, days=days),
            cut(printable(evidence.note), MAX_SENTENCE),
        )
        if one
    )
    return PageLink(anchor, where), notes
