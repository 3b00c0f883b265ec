"""Pages of the reference that list what the code describes: keys, columns, fields, kinds, questions, detectors.
`tests.reference` writes them. They are committed, so that they can be read without building the site."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from kafkasniff.analysis import find_question, parameters_of, question_names
from kafkasniff.analysis.audit import AuditedClient, AuditFinding, BetweenBrokers, Need, NewVersions
from kafkasniff.analysis.comparison import answer as diff
from kafkasniff.analysis.comparison.inference import Thresholds
from kafkasniff.analysis.detectors import Evidence, Finding, detector_names, find_detector
from kafkasniff.analysis.detectors.connections import ClientIdentity, Transport
from kafkasniff.analysis.follow import Consumer, RecordWay, WayStep
from kafkasniff.analysis.overview import answer as stats
from kafkasniff.analysis.visibility import OtherProtocols, Undecoded, VisibleTraffic
from kafkasniff.cli.render.audit_text import _Counts, _Json
from kafkasniff.filters.fields import FIELDS, OTHER_NAMES
from kafkasniff.sinks.formats import JSON_KEYS
from kafkasniff.tables.rows.schemas import COLUMNS, ROWS
from kafkasniff.text.problem_kinds import PROBLEM_KINDS
from kafkasniff.tls.descriptions import ShownCertificate
from tests.analysis.detectors.faults import kinds

ROOT = Path(__file__).resolve().parents[1]
FAULTS = ROOT / "captures" / "faults"
ANSWERS = ROOT / "tests" / "analysis" / "detectors" / "faults"
SQL = {"int64": "bigint", "int32": "int", "bool": "boolean", "double": "double", "string": "string", "binary": "binary"}
"""Names of types as Spark shows them."""
VALUES = "Times are RFC 3339 in UTC, sizes are bytes, latencies and durations microseconds. Unknown values are null."
SOURCES = {"sources": "Captures and folders as given."}
BROKEN = {"broken": "Whether a capture was structurally broken or truncated."}
_VISIBILITY = {"visibility": VisibleTraffic, "undecoded": Undecoded, "not_kafka": OtherProtocols}


class ResultPage(NamedTuple):
    """What describes the JSON of a command: the whole object, then those in it by their keys."""

    before: Mapping[str, str]
    """Keys that no class has, because the command adds them."""
    whole: Sequence[type]
    after: Mapping[str, str]
    """Likewise, at the end."""
    parts: Mapping[str, type]


RESULTS = {
    "check": ResultPage(
        SOURCES
        | BROKEN
        | {
            "counts": "Number of findings by severity: `error`, `warning`, `note`.",
            "findings": "Findings, worst first.",
            "notes": "Sentences about what is unknown, or was dropped to stay within bounds.",
            "visibility": "How much of the traffic was decoded.",
        },
        (),
        {},
        {"findings": Finding, "evidence": Evidence, **_VISIBILITY},
    ),
    "stats": ResultPage(
        SOURCES | BROKEN,
        (stats.OverviewAnswer,),
        {
            "findings": "As in `check`, worst first, without `meaning`, `advice`, `evidence` and `values`.",
            "security": "`identities` as in `kafkasniff security`, those `findings` that it shows, `more` and `notes`.",
        },
        {
            **{"exchanges": stats.Exchanges, "connections": stats.ConnectionTotals},
            **{"failed_connects": stats.FailedConnectStats, "encrypted": stats.EncryptedStats},
            **{"brokers": stats.BrokerStats, "clients": stats.ClientStats, "apis": stats.ApiStats},
            **{"latency": stats.LatencyStats, "topics": stats.TopicStats},
            **{"produced, fetched, replicated": stats.Traffic, "groups": stats.GroupStats},
            **{"errors": stats.ErrorStats, "problems": stats.ProblemStats, **_VISIBILITY},
            **{"security.identities": ClientIdentity, "transport": Transport},
            "certificate, client_certificate": ShownCertificate,
        },
    ),
    "diff": ResultPage(
        BROKEN,
        (Thresholds, diff.ComparisonAnswer),
        {},
        {
            **{"before, after": diff.Compared, "Compared numbers": diff.Change, "versions": diff.VersionDiff},
            **{"rates": diff.Rate, "latency": diff.LatencyDiff, "p50, p90, p99": diff.Shift, "sizes": diff.Size},
            **{"errors": diff.ErrorDiff, "topics": diff.TopicDiff, "batching": diff.BatchingDiff},
            **{"clients": diff.ClientDiff, "software_before, software_after": diff.Software},
            "brokers": diff.BrokerDiff,
        },
    ),
    "follow": ResultPage(
        SOURCES
        | BROKEN
        | {
            "records": "The ways of the first records, by the time of their first step.",
            "more": "Number of further records (`--count`).",
        },
        (),
        {},
        {"records": RecordWay, "steps": WayStep, "consumers": Consumer},
    ),
    "audit": ResultPage(
        {},
        (_Json,),
        {},
        {
            **{"counts": _Counts, "clients": AuditedClient, "findings": AuditFinding, "needs": Need},
            **{"between_brokers": BetweenBrokers, "new": NewVersions},
        },
    ),
}
"""By command."""


def makers() -> Mapping[str, Callable[[], Iterable[str]]]:
    return {
        **{"detectors.md": _detectors, "fields.md": _fields, "json-lines.md": _json_lines},
        **{f"json-{command}.md": functools.partial(_result, command) for command in RESULTS},
        **{"problems.md": _problems, "questions.md": _questions, "tables.md": _tables},
    }


@functools.cache
def pages() -> Mapping[str, str]:
    return {name: _lines(make()) for name, make in makers().items()}


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def table_head(*heads: str) -> Iterator[str]:
    yield table_row(*heads)
    yield "|" + " --- |" * len(heads)


def table_row(*cells: str) -> str:
    return "| " + " | ".join(re.sub(r"([|<])", r"\\\1", cell) for cell in cells) + " |"


def _listed(title: str, rows: Iterable[tuple[str, str]], key: str) -> Iterator[str]:
    yield f"\n## {title}\n"
    yield from table_head(key, "meaning")
    yield from (table_row(f"`{name}`", meaning) for name, meaning in rows)


def _prose(text: str) -> Iterator[str]:
    """A docstring as Markdown: a line per paragraph or point."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield ""
        points = re.split(r"^- ", paragraph, flags=re.M)
        if len(points) > 1:
            yield from (f"- {' '.join(point.split())}" for point in points[1:])
        else:
            yield re.sub(
                r"^Caveats: (.)", lambda found: f"**Caveats.** {found[1].upper()}", " ".join(paragraph.split())
            )


def _parameters(subject: Any, dash: bool) -> Iterator[str]:
    for one in parameters_of(subject):
        default = one.default_text if one.default_text is not None else "" if dash else str(one.default)
        name = f"--{one.name.replace('_', '-')}" if dash else one.name
        choices = f" ({', '.join(one.choices)})" if one.choices else ""
        yield f"- `{name}`{f' = {default}' if default else ''}: {one.help}{choices}"


def _detectors() -> Iterator[str]:
    yield "# Detectors"
    yield "\nWhat [`kafkasniff check`](../check.md) reports. `--set DETECTOR.THRESHOLD=VALUE` changes a threshold."
    yield "\n- Detectors ignore the content of keys and values."
    yield "- Each reports at most its 100 worst findings, and adds a note if it reached a memory bound."
    yield "- Programs with the same client id at the same address count as one client."
    for name in detector_names():
        detector = find_detector(name)
        yield f"\n## {name}"
        yield from _prose(detector.__doc__ or "")
        thresholds = list(_parameters(detector, dash=False))
        if thresholds:
            yield "\nThresholds:\n"
            yield from thresholds

    yield "\n## Captures of trouble"
    yield "\nRecorded from real brokers and clients (`captures/faults/`), with what `check` reports first and its exit"
    yield "code. The last column names captures that only look like it; they have at most a note for this. Kinds"
    yield "without a capture were only seen with a real cluster."
    yield ""
    yield from table_head("kind", "capture", "what happened", "first finding", "exit code", "only looks like it")
    facts = {path.name: msgspec.json.decode(path.read_bytes()) for path in sorted(FAULTS.glob("*.json"))}
    for kind in kinds():
        if kind.capture is None:
            yield table_row(kind.name, "", kind.shows, kind.first, kind.code, "")
            continue
        fact = facts[f"{kind.capture}.pcap.json"]
        alike = [f"`{one['file']}`" for one in facts.values() if one["looks_like"] == fact["file"]]
        yield table_row(kind.name, f"`{fact['file']}`", fact["shows"], *_verdict(fact["file"]), ", ".join(alike))


def _verdict(capture: str) -> tuple[str, str]:
    """Severity and detector of the first finding in a reviewed answer of `check`, and its exit code."""
    text = (ANSWERS / f"{capture}.txt").read_text().partition("\n\n\n")[0]
    severity = re.search(r"^(error|warning|note) ", text, re.M)
    detector = re.search(r"^ {9}([a-z-]+): (?:\d{4}-\d\d-\d\d |conn \d|evidence)", text, re.M)
    code = re.search(r"^check: exit code (\d+)$", text, re.M)
    assert code is not None, capture
    return "none" if severity is None or detector is None else f"{severity[1]}: {detector[1]}", code[1]


def _questions() -> Iterator[str]:
    yield "# Questions"
    yield "\nWhat [`kafkasniff analyze`](../analyses.md) answers, with the options of each question and its columns."
    for name in question_names():
        question = find_question(name)
        yield f"\n## {name}"
        yield from _prose(question.__doc__ or "")
        options = list(_parameters(question, dash=True))
        if options:
            yield ""
            yield from options
        empty = question()
        yield ""
        yield from table_head("column", "type", "meaning")
        types = {field.name: sql(field.type) for field in empty.result().schema}
        yield from (table_row(f"`{name}`", types[name], meaning) for name, meaning in empty.meanings().items())


def sql(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{sql(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "struct"
    return "timestamp" if pa.types.is_timestamp(kind) else SQL[str(kind)]


def _fields() -> Iterator[str]:
    yield "# Fields of filters"
    yield "\nThe names that [`--filter`](../filters.md) knows, besides paths into bodies and records."
    others = ", ".join(f"`{other}` is another name of `{name}`" for other, name in OTHER_NAMES.items())
    yield f"\n{others[0].upper()}{others[1:]}.\n"
    yield from table_head("field", "kind", "meaning")
    yield from (table_row(f"`{one.name}`", one.kind, one.meaning) for one in FIELDS.values())


def _json_lines() -> Iterator[str]:
    yield "# Keys of JSON lines"
    yield "\nThe objects of [`decode` and `live --format json`](../json.md). `kafkasniff help json` shows the same."
    for kind, keys in JSON_KEYS.items():
        yield from _listed(kind, keys.items(), "key")


def _problems() -> Iterator[str]:
    yield "# Problems"
    yield (
        "\nA problem reports lost, cut, damaged or odd data in a capture, a stream or a message. Everything that could "
        "be decoded is still shown. Problems do not change the exit code, except that a broken or truncated capture "
        "file gives 4."
    )
    yield (
        "\n`kind` is for programs and stays the same between releases. `detail` is for people, may change, and never "
        "contains secrets. `kafkasniff help problems` shows the same."
    )
    for about, named in PROBLEM_KINDS.items():
        yield from _listed(about, named.items(), "kind")


def _tables() -> Iterator[str]:
    yield "# Columns of the tables"
    yield (
        "\nThe tables that [`kafkasniff export`](../export.md) writes. Times are UTC, in microseconds. Unknown values "
        "are null. `partitions` and `headers` are structs in columns of these names. `kafkasniff help tables` shows "
        "the same."
    )
    for name, columns in COLUMNS.items():
        yield f"\n## {name}\n\n{ROWS[name]}\n"
        yield from table_head("column", "type", "meaning")
        yield from (table_row(f"`{one.name}`", sql(one.type), one.meaning) for one in columns)


def _result(command: str) -> Iterator[str]:
    page = RESULTS[command]
    yield f"# JSON of `kafkasniff {command}`"
    yield f"\nThe object that [`{command}`](../{command}.md) writes with `--format json`. {VALUES}"
    whole = dict(page.before)
    for kind in page.whole:
        whole |= described(kind)
    yield from _listed("Keys", (whole | page.after).items(), "key")
    for heading, kind in page.parts.items():
        # `diff` adds the name of each side.
        named = {"source": "The capture or folder."} if kind is diff.Compared else {}
        yield from _listed(heading, (named | described(kind)).items(), "key")
        if issubclass(kind, stats.Exchanges) and kind is not stats.Exchanges:
            yield "\nAlso the counts of [exchanges](#exchanges)."


def described(kind: type) -> dict[str, str]:
    """The keys of a struct's JSON with their docstrings; without those of `Exchanges`, which several structs have."""
    texts: dict[str, str] = {}
    left_out = {msgspec.Struct} | ({stats.Exchanges} - {kind})
    for one in reversed(kind.__mro__):
        if issubclass(one, msgspec.Struct) and one not in left_out:
            texts |= _docstrings(one)
    names = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    return {names[name].removesuffix("_ns"): text for name, text in texts.items()}


def _docstrings(kind: type) -> dict[str, str]:
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for node, after in zip(definition.body, [*definition.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            found[node.target.id] = " ".join(str(text).split())
    return found
