"""Explains why a command has nothing to work on: what the captures hold instead of what was asked for."""

from __future__ import annotations

import difflib
import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.option_groups import decoding_arguments, reads_twice
from kafkasniff.text.printable import printable, word

if TYPE_CHECKING:
    from kafkasniff.analysis.export import Export
    from kafkasniff.enrich import Catalog
    from kafkasniff.filters import Compare, Predicate
    from kafkasniff.model import Connection, Exchange, Summary
    from kafkasniff.native.streams import Links

MAX_PACKETS: Final = 100_000
"""Packets of the captures that are read again: an explanation must not take as long as an answer."""
MAX_VALUES: Final = 10_000
"""Values of a field that are remembered, the first ones."""
MAX_NAMED: Final = 5
"""Values, endpoints or protocols that are named; of the rest the number is given."""
MAX_COMPARED: Final = 200
"""Characters of a value that are compared with what was asked for: a client id may have 32,767."""

_PLURALS: Final = {
    "api": "APIs",
    "client_id": "client ids",
    "group_id": "groups",
    "status": "statuses",
    "transactional_id": "transactional ids",
}
"""Names of fields for several values; others end in s."""
_PAYLOAD: Final = ("record", "request", "response", "trace_id")
"""Fields whose values are not named."""
_RANGES: Final = ("duration", "size", "time")
"""Kinds of fields whose values are given as a range; likewise numbers, if there are many."""


def say_nothing(
    environment: Environment,
    captures: tuple[str, ...],
    options: Mapping[str, Any],
    predicate: Predicate | None,
    *,
    quiet: bool,
    summary: Summary | None = None,
    catalog: Catalog | None = None,
    source: str | None = None,
    suffices: bool = False,
) -> Exit:
    """Nothing was decoded or selected: say on stderr, in one line, what the captures hold. Returns the exit code.

    The captures are read again without filters, up to `MAX_PACKETS`; if that is not possible, the line has only the
    totals of the run. `options`: those of framing; `summary`: of the run that found nothing; `catalog`: the names that
    it knew; `source`: named in the line; `suffices`: if exchanges match after all, there
    is nothing to say. Raises CaptureError, UsageError, Interrupted.
    """
    ports: Sequence[int] = options["ports"]
    if captures and reads_twice(None, captures):
        # If these ports carry Kafka, the filters are the reason.
        scoped = summary is not None and bool(summary.requests + summary.responses)
        held = Held(predicate, ports)
        complete = True
        if scoped and not suffices and held.says_only_that:
            text = held.filters[0].in_words()
        else:
            complete = _read(environment, captures, options, held, scoped=scoped, quiet=quiet, catalog=catalog)
            if suffices and held.matched:
                return Exit.OK
            text = held.in_words()
        if not complete:
            text += f" (in the first {MAX_PACKETS:,} packets)"
    elif captures and summary is not None:
        from kafkasniff.cli.running.pipeline import summary_line

        text = f"{_asked(predicate, ports)}: {summary_line(summary)}"
    else:
        text = f"{_asked(predicate, ports)}: there are no exchanges"
    environment.say(text if source is None else f"{source}: {text}")
    return Exit.NOTHING


def say_topics(
    environment: Environment, export: Export, wanted: Sequence[str], since_ns: int | None, until_ns: int | None
) -> Exit:
    """Nothing was found in an export, which may be asked for topics: say which ones there are. Returns the exit code.

    Raises CaptureError, UsageError.
    """
    from kafkasniff.analysis.accumulator import TableReading

    rows, found = 0, set[str]()
    for batch in export.batches("exchanges", TableReading(("topics",)), since_ns, until_ns):
        rows += batch.num_rows
        if len(found) < MAX_VALUES:
            found.update(name for name in batch.column("topics").flatten().unique().to_pylist() if name is not None)
    if rows and not wanted:
        return Exit.OK
    if not rows:
        within = "" if since_ns is None and until_ns is None else " in this span of time"
        environment.say(f"no Kafka messages: there are no exchanges{within}")
    else:
        names = _listed(_nearest(sorted(found), wanted))
        environment.say(f"no exchange matches topic {' or '.join(map(word, wanted[:MAX_NAMED]))}; topics: {names}")
    return Exit.NOTHING


def end_without_messages(summary: Summary, shown: int | None) -> str | None:
    """What to say at the end of a live capture without Kafka messages, or without selected ones; else None."""
    if not summary.packets:
        return "no packets arrived"
    if not summary.requests + summary.responses:
        return "no Kafka messages arrived"
    return "no message matched the filters" if shown == 0 else None


def _asked(predicate: Predicate | None, ports: Sequence[int]) -> str:
    if predicate is not None:
        return "no exchange matches the filters"
    return f"no Kafka messages{_on_ports(ports)}"


def _on_ports(ports: Iterable[int]) -> str:
    wanted = sorted(set(ports))
    return f" on port{'' if len(wanted) == 1 else 's'} {_listed(wanted)}" if wanted else ""


def _read(
    environment: Environment,
    captures: tuple[str, ...],
    options: Mapping[str, Any],
    held: Held,
    *,
    scoped: bool,
    quiet: bool,
    catalog: Catalog | None,
) -> bool:
    """Read the captures for what they hold, `scoped`: only the given ports. Returns whether they were read whole."""
    from kafkasniff.capture import open_captures
    from kafkasniff.cli.output import Progress, wants_progress
    from kafkasniff.cli.running.pipeline import shown_parts
    from kafkasniff.engine.inspector import Inspector
    from kafkasniff.enrich import Catalog, Enricher

    # What the first reading has left in pieces is given back as a whole before the second one.
    gc.collect()
    arguments = decoding_arguments(options)
    if not scoped:
        arguments["ports"] = ()
    if not (scoped and held.has_columns):
        # Connections are the reason if there are no messages, and have what columns lack.
        arguments |= {"connections": True, "network": "links"}
    inspector = Inspector(records=held.records, **arguments)
    enricher = Enricher(Catalog() if catalog is None else catalog)
    enricher.limit_memory(inspector.memory)
    inspector.count_beside(enricher)
    finder = None
    if held.has_columns:
        from kafkasniff.cli.running.held_columns import HeldColumns

        finder = HeldColumns(held, enricher, lambda: inspector.options_now)
    shows, packets, complete = wants_progress(environment, to_terminal=False, quiet=quiet), 0, True
    with open_captures(captures, stdin=environment.stdin) as source:
        for part in shown_parts(source, Progress(environment, source) if shows else None):
            if packets >= MAX_PACKETS:
                complete = False
                break
            packets += part.packets
            held.begins(part)
            for events, _ in inspector.feed_columns(part, finder):
                enricher.feed(events)
                held.take(events)
            held.take_links(inspector.take_links())
    for events in inspector.close_slices():
        enricher.feed(events)
        held.take(events)
        held.take_links(inspector.take_links())
    held.take_links(inspector.take_links())
    held.summary = inspector.summary
    return complete


class HeldValues:
    """Values that exchanges have in one field."""

    def __init__(self, field: str) -> None:
        from kafkasniff.filters.fields import FIELDS, values_of

        self.name = field
        self.field = FIELDS[field]
        self._values = values_of(field)[1]
        self.found: set[Any] = set()
        self.more = False
        """There are others, beyond MAX_VALUES."""

    def take(self, candidate: Any) -> None:
        """Add the values of an exchange."""
        kind = self.field.kind
        if kind == "host" and self.name in ("client", "broker", "host"):
            seen = candidate.seen
            # Ports of clients change with each connection.
            ends = {"client": [seen.client and seen.client.address], "broker": [seen.broker and str(seen.broker)]}
            new: Iterable[Any] = ends.get(self.name) or [*ends["client"], *ends["broker"]]
        else:
            new = self._values(candidate)
        self.add(new)

    def add(self, new: Iterable[Any]) -> None:
        """Add values, in the order of their exchanges."""
        for value in new:
            if value is None or isinstance(value, dict | list) or value in self.found:
                continue
            if len(self.found) >= MAX_VALUES:
                self.more = True
                return
            self.found.add(value)

    def in_words(self, wanted: Sequence[str]) -> str:
        """`topics: a, b and 3 more`, those that resemble `wanted` first; empty without values."""
        kind = self.field.kind
        plural = _PLURALS.get(self.name, self.name if kind in _RANGES or self.name.endswith("s") else f"{self.name}s")
        if not self.found:
            return ""
        if kind in _RANGES or (kind == "number" and len(self.found) > MAX_NAMED):
            low, high = (_shown(self.name, one) for one in (min(self.found), max(self.found)))
            return f"{plural}: {low} to {high}"
        if kind == "number":
            names = list(map(str, sorted(self.found)))
        else:
            names = _nearest(sorted({_shown(self.name, one) for one in self.found}), wanted)
        return f"{plural}: {_listed(names)}{'; there are more' if self.more else ''}"


class HeldFilter:
    """One of the filters that all must hold."""

    def __init__(self, predicate: Predicate) -> None:
        from kafkasniff.filters import compiled, fields_of
        from kafkasniff.filters.fields import FIELDS

        self.predicate = predicate
        self._test = compiled(predicate)
        self.fields = sorted(fields_of(predicate))
        # Paths lead to payload.
        self.values = [HeldValues(field) for field in self.fields if field in FIELDS and field not in _PAYLOAD]
        self.matches = 0

    def take(self, candidate: Any) -> bool:
        """Add an exchange; returns whether it matches."""
        matches = self._test(candidate) is True
        self.matches += matches
        for value in self.values:
            value.take(candidate)
        return matches

    @property
    def text(self) -> str:
        """`topic nosuch`, `topic a or b`, `error != NONE`; `a filter on api, topic` for what is longer."""
        from kafkasniff.filters.tree import Compare

        wanted = self._wanted
        if wanted:
            return f"{self._name} {' or '.join(map(word, wanted[:MAX_NAMED]))}"
        if isinstance(self.predicate, Compare) and isinstance(self.predicate.value, str | int | float):
            value = _shown(self.predicate.field, self.predicate.value)
            return f"{self._name} {self.predicate.operator} {printable(value)}"
        return f"a filter on {', '.join(self.fields)}"

    @property
    def _name(self) -> str:
        return self.fields[0].removesuffix("_id") if self.fields[0] == "group_id" else self.fields[0]

    @property
    def _wanted(self) -> list[str]:
        """The values of which one must hold, as text; empty if the filter is not such a choice."""
        found: list[str] = []
        for leaf in _leaves(self.predicate):
            if leaf is None or leaf.operator not in ("==", "in", "glob") or len(self.fields) > 1:
                return []
            given = leaf.value if isinstance(leaf.value, tuple) else (leaf.value,)
            found += [_shown(leaf.field, one) for one in given if isinstance(one, str | int | float)]
        return list(dict.fromkeys(found))

    def in_words(self) -> str:
        """Why it matches nothing: the values that there are."""
        held = [text for value in self.values if (text := value.in_words(self._wanted))]
        return "; ".join([f"no exchange matches {self.text}", *held])


class Held:
    """What captures hold."""

    def __init__(self, predicate: Predicate | None, ports: Sequence[int]) -> None:
        from kafkasniff.filters.tree import And

        parts = () if predicate is None else predicate.parts if isinstance(predicate, And) else (predicate,)
        self.filters = [HeldFilter(part) for part in parts]
        self._predicate = predicate
        self.wanted_ports = frozenset(ports)
        self.exchanges = 0
        """On these ports."""
        self.matched = 0
        """Those that all filters select."""
        self.ports: Counter[int] = Counter()
        self._protocols: Counter[str] = Counter()
        self._openings: dict[str, Counter[str]] = {"refused": Counter(), "unanswered": Counter()}
        self.start_ns: int | None = None
        self.summary: Summary | None = None

    @property
    def says_only_that(self) -> bool:
        """Whether the line only says that nothing matches: there is one filter, and it asks for records alone."""
        from kafkasniff.engine.record_values import is_record_field

        fields = self.filters[0].fields if len(self.filters) == 1 else ["record.place"]
        # Names that were learned late may have changed places.
        return all(is_record_field(name) and name != "record.place" for name in fields)

    @property
    def has_columns(self) -> bool:
        """Whether columns can have all that the filters ask for."""
        from kafkasniff.engine.record_values import is_record_field
        from kafkasniff.engine.selection import BODY_FIELDS, HEADER_FIELDS
        from kafkasniff.filters import fields_of

        return all(
            is_record_field(field) or field in HEADER_FIELDS | BODY_FIELDS for field in fields_of(self._predicate)
        )

    @property
    def records(self) -> Any:
        """How far records must be decoded."""
        from kafkasniff.filters import needs_records

        return "full" if self._predicate is not None and needs_records(self._predicate) else "batches"

    def begins(self, part: Any) -> None:
        """Note the time of the first packet, which relative times count from."""
        from kafkasniff.model import NO_TIME

        if self.start_ns is None:
            times = part.time_ns[part.time_ns != NO_TIME]
            self.start_ns = int(times[0]) if len(times) else None

    def take(self, events: Iterable[Any]) -> None:
        """Take events of an inspector."""
        from kafkasniff.model import Connection, Exchange

        for event in events:
            if type(event) is Exchange:
                self._exchange(event)
            elif type(event) is Connection:
                self._connection(event)

    def take_links(self, links: Links) -> None:
        """Take TCP connections."""
        if not len(links):
            return
        from kafkasniff.engine.connection_stats import endpoint
        from kafkasniff.native.streams import OPENINGS

        brokers = zip(*(links.rows[name][:, 1].tolist() for name in ("high", "low", "port")), strict=True)
        for number, broker in zip(links.rows["opening"].tolist(), brokers, strict=True):
            found = self._openings.get(OPENINGS[number] or "")
            if found is not None and len(found) < MAX_VALUES:
                found[str(endpoint(broker))] += 1

    def _exchange(self, exchange: Exchange) -> None:
        from kafkasniff.filters import Candidate

        seen = exchange.request or exchange.response
        assert seen is not None
        if seen.broker is not None:
            self.ports[seen.broker.port] += 1
            if self.wanted_ports and seen.broker.port not in self.wanted_ports:
                return
        self.exchanges += 1
        candidate = Candidate(
            request=exchange.request, response=exchange.response, ended=exchange, start_ns=self.start_ns
        )
        matches = [filter_.take(candidate) for filter_ in self.filters]
        self.matched += all(matches)

    def _connection(self, connection: Connection) -> None:
        if connection.verdict != "kafka":
            name = connection.protocol or ("unknown" if connection.verdict == "not_kafka" else "too little data")
            self._protocols[name] += 1

    def in_words(self) -> str:
        """The line: why nothing was selected, and what there is."""
        if not self.exchanges:
            asked = f"no Kafka messages{_on_ports(self.wanted_ports)}"
            if self.ports:
                found = [port for port, _ in self.ports.most_common()]
                return f"{asked}; Kafka is on port{'' if len(found) == 1 else 's'} {_listed(found)}"
            return f"{asked}: {self._traffic()}"
        if self.matched:
            return f"{_count(self.matched, 'exchange')}, but nothing to show of them"
        none = [filter_ for filter_ in self.filters if not filter_.matches]
        if none:
            return "; ".join(held_filter.in_words() for held_filter in none)
        each = ", ".join(f"{filter_.text} ({filter_.matches:,})" for filter_ in self.filters)
        return f"none of {_count(self.exchanges, 'exchange')} matches all filters; these match one: {each}"

    def _traffic(self) -> str:
        summary = self.summary
        assert summary is not None
        if not summary.packets:
            return "the captures have no packets"
        parts = [_count(summary.packets, "packet"), _count(summary.connections, "TCP connection")]
        for how, ends in self._openings.items():
            if ends:
                where = _listed([end for end, _ in ends.most_common()])
                parts.append(f"{ends.total():,} {how} by {where}")
        for protocol, number in self._protocols.most_common(MAX_NAMED):
            parts.append(f"{number:,} with {protocol}" if protocol != "unknown" else f"{number:,} not Kafka")
        if summary.kafka_connections:
            parts.append(f"{summary.kafka_connections:,} of Kafka without messages")
        return ", ".join(parts)


def _nearest(names: list[str], wanted: Sequence[str]) -> list[str]:
    """Names that resemble one of `wanted` first, else by name."""
    if not wanted:
        return names
    patterns = [one[:MAX_COMPARED].lower().strip("*?") for one in wanted[:MAX_NAMED]]
    matchers = [difflib.SequenceMatcher(b=pattern, autojunk=False) for pattern in patterns]

    def unlike(name: str) -> float:
        worst = 0.0
        for matcher in matchers:
            matcher.set_seq1(name[:MAX_COMPARED].lower())
            worst = max(worst, matcher.ratio())
        return -worst

    return sorted(names, key=lambda name: (unlike(name), name))


def _listed(values: Sequence[object]) -> str:
    """`a, b, c, d, e and 4 more`."""
    names = ", ".join(map(word, values[:MAX_NAMED]))
    return f"{names} and {len(values) - MAX_NAMED:,} more" if len(values) > MAX_NAMED else names


def _leaves(predicate: Predicate) -> Iterator[Compare | None]:
    """The comparisons of which one must hold; None for anything else."""
    from kafkasniff.filters.tree import Compare, Or

    match predicate:
        case Compare():
            yield predicate
        case Or(parts):
            for part in parts:
                yield from _leaves(part)
        case _:
            yield None


def _shown(name: str, value: str | int | float) -> str:
    """A value of a field, as filters have it."""
    from kafkasniff.filters.fields import FIELDS
    from kafkasniff.kafka.apis.dissectors import api_names
    from kafkasniff.kafka.schema.codes import error_name
    from kafkasniff.text.times import duration, rfc3339

    field = FIELDS.get(name)
    if field is not None and isinstance(value, int):
        match field.kind:
            case "api":
                return api_names().get(value, str(value))
            case "error":
                return error_name(value) or str(value)
            case "time":
                return str(rfc3339(value))
            case "duration":
                return duration(value * field.unit_ns)
    return str(value)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
