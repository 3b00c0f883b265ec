"""Error codes in responses, at any depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.between_brokers import is_between_brokers, is_broker, is_work
from kafkasniff.analysis.columns import (
    ORDER,
    column,
    encoded,
    exploded,
    in_any,
    keys_of,
    named,
    only,
    partition_errors,
    repeated,
    with_topics,
)
from kafkasniff.analysis.detectors.denied import DENIED
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, SEVERITIES, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.tally import (
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER,
    CLUSTER_COLUMNS,
    Tally,
    clients,
    clusters,
)
from kafkasniff.analysis.detectors.wording import client, elapsed, in_cluster, plural, quoted, shortened, some
from kafkasniff.analysis.error_causes import CAUSE_COLUMNS, CODE, Cause, carries_messages, causes_of
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.kafka.apis.dissectors import api_by_name
from kafkasniff.kafka.schema.codes import KafkaError, error_by_code
from kafkasniff.text.printable import word

_ANYWHERE: Final = frozenset({47, 90, *DENIED})
"""INVALID_PRODUCER_EPOCH and PRODUCER_FENCED: `fenced-producers` reports them; denials: `denied`."""
_OF_PARTITIONS: Final = frozenset({6, 74, 75})
"""Codes of leaders, which `not-leader` reports if they belong to a partition."""
_OF_COMMITS: Final = frozenset({22, 25, 27, 82, 110, 113})
"""Codes of former members: `refused-commits` reports them."""
_ELSEWHERE: Final = {
    # oversized-messages, repeated-sequences
    "Produce": frozenset({10, 18, 45, 46}),
    "OffsetCommit": _OF_COMMITS,
    "TxnOffsetCommit": _OF_COMMITS,
}
_LOGINS: Final = frozenset({"SaslHandshake", "SaslAuthenticate"})
"""APIs whose errors `sasl-failures` reports."""
MAX_NAMED: Final = 1 << 16
"""Maximum number of names and messages of errors that are kept; the rarest are dropped first."""
MAX_TARGETS: Final = 1 << 17
"""Maximum number of things that were refused, and that succeeded; the rarest are dropped first."""
MAX_NAMES: Final = 20
"""Maximum number of topics, names, messages and clients in the values of a finding."""
SHOWN: Final = 3
"""Clients that a sentence names."""
SUCCESSES: Final = 2
"""So many responses, at least, show that an error is over: of the request, and of the next one."""
FLOOD: Final = 50
"""This many times `many` is much in total, if each error concerns something else."""
_SOURCE: Final = (*CLIENT, *CLUSTER, ("api", pa.string()))
_CAUSE: Final = (*_SOURCE, ("error_code", pa.int64()))
_source: Final[Callable[[Mapping[str, Any]], tuple[Any, ...]]] = itemgetter(*(name for name, _ in _SOURCE))
_cause: Final[Callable[[Mapping[str, Any]], tuple[Any, ...]]] = itemgetter(*(name for name, _ in _CAUSE))
_TARGET: Final = (("name", pa.string()), ("topic", pa.string()), ("partition", pa.int32()))
"""What a request is about: a group or transactional id, a topic, a partition."""
_SAYS: Final = (*_CAUSE, ("kind", pa.string()), ("text", pa.string()))
_KINDS: Final = {
    "group_id": "group",
    "transactional_id": "transactional id",
    "resource_name": "resource",
    "user": "user",
    "member_id": "member",
    "log_dir": "log directory",
    "feature": "feature",
}
"""Names of the fields beside an error code; FindCoordinator's keys are groups or transactional ids."""
_TOPIC: Final = "topic"
_MESSAGE: Final = "message"
_ACTS: Final = {
    "program": "Retrying does not help: the client's program or configuration has to change.",
    "rights": "Retrying does not help: the administrator has to grant the right, or correct the credentials.",
    "operator": "The client cannot solve it: the operator of the brokers has to act.",
    "answer": "It is an answer, not a failure, unless the program expected another one.",
}
_UNKNOWN: Final = "Find out what the code means to the broker's version; its log may have the reason"


class HiddenErrorThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `HiddenErrors`."""

    many: Annotated[int, Meta(ge=1, description="This often for the same thing, an error is never usual.")] = 20
    at_least: Annotated[
        int, Meta(ge=1, description="Ignore fewer errors than this of one client that it solves by itself.")
    ] = 3
    lasting: Annotated[
        Duration,
        Meta(
            ge=0,
            description="Errors that clients solve by themselves are a warning from this duration, an error if no "
            "attempt in the capture succeeded …",
        ),
    ] = 5_000_000_000
    stuck: Annotated[
        Duration, Meta(ge=0, description="… and an error from this one, if no later attempt succeeded.")
    ] = 30_000_000_000


class _Case(msgspec.Struct):
    """An error of a client for one thing, and whether it got over it."""

    row: dict[str, Any]
    error: KafkaError | None
    solved: bool
    """A later request of the client to the same API for the same thing succeeded."""
    successes: int
    """How many earlier and later ones did."""
    lasted: int
    """Nanoseconds from the first error that no success followed to the last; if solved, from the first."""
    severity: Severity | None
    """None: usual."""

    @property
    def cause(self) -> tuple[Any, ...]:
        return _cause(self.row)

    @property
    def who(self) -> tuple[Any, Any]:
        return self.row["client_id"], self.row["client_ip"]

    @property
    def about(self) -> tuple[Any, Any]:
        return self.row["name"], self.row["topic"]


class HiddenErrors(Detector[HiddenErrorThresholds]):
    """Error codes in responses: of the whole response, or of partitions, groups, members and resources in it.

    Clients often hide these. `dissectors/errors.txt` says for each code what it means, who has to act, and how.

    If the client can solve it by itself, or the same request may succeed later, the outcome counts: it is ignored or a
    note if a later attempt succeeded soon, a warning if it took long, and an error if none did. Other codes are an
    error if they stop clients that read, write, commit or join, and a warning if they refuse an administrative request.
    An answer such as TOPIC_ALREADY_EXISTS is a note until it repeats.

    One finding covers an error of all clients and APIs, and quotes the broker's message. Codes that other detectors
    report are skipped.

    Caveats: the client may expect the error, for example OFFSET_OUT_OF_RANGE when it starts over.
    """

    name: ClassVar[str] = "hidden-errors"
    summary: ClassVar[str] = "Error codes in responses that clients did not get over by themselves."
    parameters_type = HiddenErrorThresholds
    error_bodies = True
    parts_clusters = True

    _errors = Tally("errors", _CAUSE, sums=("errors", "partitions"))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "api_key", "status", *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "group_id", "transactional_id", "topics")
        more = ("error_code", "error_count", "partitions", "response_body")
        return {"exchanges": TableReading((*ORDER, *own, *more))}

    def shapes(self) -> Mapping[str, Shape]:
        count: Any = ("count", pa.int64(), "sum")
        first: Any = ("first", pa.int64(), "min")
        last: Any = ("last", pa.int64(), "max")
        return {
            **self._errors.shapes(),
            "cases": Shape(keys=(*_CAUSE, *_TARGET), measures=(count, first, last), weight="count", bound=MAX_TARGETS),
            "fine": Shape(keys=(*_SOURCE, *_TARGET), measures=(count, last), weight="count", bound=MAX_TARGETS),
            "says": Shape(keys=_SAYS, measures=(count, first), weight="count", bound=MAX_NAMED),
        }

    # -- rows ----------------------------------------------------------------------------------------------------------

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if not batch.num_rows:
            return
        names = pc.coalesce(column(batch, "group_id"), column(batch, "transactional_id"))
        batch = batch.append_column("name", names)
        failed = pc.greater(pc.fill_null(column(batch, "error_count"), 0), 0)
        answered = in_any(batch, "status", ["answered"])
        # Where more failed than partitions, those without an error prove nothing: a ShareFetch may have been refused
        # the acknowledgements of a partition that it reads.
        errors = only(batch, failed)
        parts, others = partition_errors(errors, ["api"])
        whole = np.ones(batch.num_rows, np.bool_)
        whole[failed.to_numpy(zero_copy_only=False)] = others <= 0
        kept = ["name", "api", "time_ns", *CLIENT_COLUMNS, *CLUSTER_COLUMNS]
        fine = named(exploded(only(batch, pa.array(whole)), kept))
        self._add_fine(only(batch, pc.and_(answered, pc.invert(failed))), fine)
        self._add_errors(errors, parts, others)

    def _add_fine(self, batch: pa.RecordBatch, parts: pa.RecordBatch) -> None:
        """What succeeded: requests without an error, and partitions of any request."""
        kept = ["name", "api", "time_ns", *CLIENT_COLUMNS, *CLUSTER_COLUMNS]
        whole = batch.select([*kept, "topics"])
        bare = only(whole, pc.equal(pc.fill_null(pc.list_value_length(column(batch, "partitions")), 0), 0))
        fine = only(parts, pc.equal(column(parts, "error_code"), 0))
        for rows, topic, partition in (
            (whole, None, None),
            (with_topics(bare, kept), "topic", None),
            (fine, "topic", "partition"),
        ):
            nothing = pa.nulls(rows.num_rows, pa.string())
            self.parts["fine"].add(
                {
                    **clients(rows),
                    **clusters(rows),
                    **{name: encoded(rows, name) for name in ("api", "name")},
                    "topic": nothing if topic is None else encoded(rows, topic),
                    "partition": nothing.cast(pa.int32()) if partition is None else column(rows, partition),
                    "count": np.ones(rows.num_rows, np.int64),
                    "last": column(rows, "time_ns"),
                }
            )

    def _add_errors(
        self, batch: pa.RecordBatch, parts: pa.RecordBatch, others: np.ndarray[Any, np.dtype[np.int64]]
    ) -> None:
        """`parts`, `others`: as of `partition_errors`."""
        if not batch.num_rows:
            return
        explains = np.array(
            [key is not None and carries_messages(key) for key in column(batch, "api_key").to_pylist()], np.bool_
        )
        simple = (others <= 0) & ~explains
        # The usual case as columns: codes of partitions, without messages.
        at = column(parts, "row").to_numpy()
        parts, at = named(only(parts, pa.array(simple[at]))), at[simple[at]]
        codes = column(parts, "error_code").cast(pa.int64())
        here = pc.invert(_are_elsewhere(column(parts, "api"), codes))
        parts, at, codes = only(parts, here), at[here.to_numpy(zero_copy_only=False)], codes.filter(here)
        rest = np.flatnonzero(~simple)
        causes, number = self._causes(batch.take(pa.array(rest)))
        listed, places = repeated(causes, number)
        flat = [cause for some_causes in causes for cause in some_causes]

        def of_causes(kind: pa.DataType, values: Iterable[Any]) -> pa.Array:
            return pa.array(values, kind).take(pa.array(places))

        wanted = np.concatenate([at, rest[listed]])
        columns = {
            "error_code": pa.concat_arrays([codes, of_causes(pa.int64(), (cause.code for cause in flat))]),
            "topic": pa.concat_arrays(
                [column(parts, "topic"), of_causes(pa.string(), (cause.topic for cause in flat))]
            ),
            "partition": pa.concat_arrays(
                [column(parts, "partition"), of_causes(pa.int32(), (cause.index for cause in flat))]
            ),
        }
        notes = [text for some_causes in causes for text in _notes(some_causes)]
        # An exchange counts once for each of its codes.
        tally = pa.table(
            {
                "row": wanted,
                "code": columns["error_code"],
                "errors": np.ones(len(wanted), np.int64),
                "partitions": np.concatenate(
                    [np.ones(len(at), np.int64), np.array([cause.partition for cause in flat], np.int64)[places]]
                ),
                "note": pa.concat_arrays(
                    [pa.array([_note(())]).take(pa.array(np.zeros(len(at), np.int64))), of_causes(pa.string(), notes)]
                ),
            }
        )
        # Without bodies and lists, which would be copied for each error.
        batch = batch.select([*ORDER, "name", "api", "group_id", "transactional_id", *CLIENT_COLUMNS, *CLUSTER_COLUMNS])
        whole = batch.take(pa.array(wanted))
        time = column(whole, "time_ns")
        self.parts["cases"].add(
            {
                **_source_of(whole),
                **columns,
                "name": encoded(whole, "name"),
                "count": np.ones(len(wanted), np.int64),
                "first": time,
                "last": time,
            }
        )
        self._add_tally(batch, tally)
        self._add_says(batch.take(pa.array(rest)), causes, number)

    @staticmethod
    def _causes(batch: pa.RecordBatch) -> tuple[list[list[Cause]], np.ndarray[Any, np.dtype[np.int64]]]:
        """As `causes_of`, without errors that other detectors report."""
        causes, number = causes_of(batch.select(CAUSE_COLUMNS))
        apis = dict(zip(number.tolist(), column(batch, "api").to_pylist(), strict=True))
        here = [
            [cause for cause in some_causes if not _is_elsewhere(apis.get(index), cause)]
            for index, some_causes in enumerate(causes)
        ]
        return here, number

    def _add_tally(self, batch: pa.RecordBatch, tally: pa.Table) -> None:
        sums = [("errors", "sum"), ("partitions", "sum"), ("note", "min")]
        folded = tally.group_by(["row", "code"], use_threads=False).aggregate(sums)
        whole = batch.take(folded.column("row").combine_chunks())
        self._errors.add(
            self,
            whole,
            {**_source_of(whole), "error_code": folded.column("code")},
            folded.column("note_min").combine_chunks(),
            errors=folded.column("errors_sum"),
            partitions=folded.column("partitions_sum"),
        )

    def _add_says(
        self, batch: pa.RecordBatch, causes: Sequence[Sequence[Cause]], number: np.ndarray[Any, np.dtype[np.int64]]
    ) -> None:
        names = ("causes", "group_id", "transactional_id")
        different, which = keys_of(batch.append_column("causes", pa.array(number)), names)
        said = [
            list(_said(causes[place], group, transaction))
            for place, group, transaction in zip(*(different.column(name).to_pylist() for name in names), strict=True)
        ]
        at, places = repeated(said, which)
        codes, kinds, texts = ([one[field] for some_said in said for one in some_said] for field in range(3))
        rows = batch.take(pa.array(at))
        self.parts["says"].add(
            {
                **_source_of(rows),
                "error_code": pa.array(codes, pa.int64()).take(pa.array(places)),
                "kind": pa.array(kinds, pa.string()).take(pa.array(places)),
                "text": pa.array(texts, pa.string()).take(pa.array(places)),
                "count": np.ones(len(at), np.int64),
                "first": column(rows, "time_ns"),
            }
        )

    def absent(self, finding: Finding) -> int:
        """A success after what may succeed later would make it a note."""
        error = error_by_code(finding.subject["error_code"])
        return SUCCESSES if error is not None and error.retriable else 0

    # -- findings ------------------------------------------------------------------------------------------------------

    def findings(self) -> Iterator[Finding]:
        tallies = {_cause(row): row for row in self.resolved("errors").to_pylist()}
        if not tallies:
            return
        says: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.resolved("says").to_pylist():
            says.setdefault(_cause(row), []).append(row)
        families: dict[tuple[Any, int], list[_Case]] = {}
        for case in self._cases(tallies):
            code = case.row["error_code"]
            family = code if case.error is None or case.error.like is None else case.error.like
            families.setdefault((case.row["cluster"], family), []).append(case)
        found = [some_cases for cases in families.values() for some_cases in _divided(cases)]
        if not found:
            return
        causes = [list(dict.fromkeys(case.cause for case in some_cases)) for some_cases in found]
        for some_cases, some_causes, evidence in zip(found, causes, self._earliest(causes), strict=True):
            yield self._finding(some_cases, [tallies[cause] for cause in some_causes], evidence, says)

    def _earliest(self, causes: Sequence[Sequence[tuple[Any, ...]]]) -> Iterator[tuple[Evidence, ...]]:
        """For each list of causes, the first exchanges that show one of them."""
        table = self.resolved("errors-evidence")
        for name in ("time_ns", "exchange_id"):
            order = pc.fill_null(table.column(name), 0)
            table = table.append_column(f"_{name}", order)
        places = [(name, "ascending") for name in ("_time_ns", "connection_id", "_exchange_id", "note")]
        table = table.take(pc.sort_indices(table, sort_keys=places))
        names = [name for name, _ in _CAUSE]
        flat = zip(*(cause for some_causes in causes for cause in some_causes), strict=True)
        asked = pa.table({name: pa.array(one, kind) for (name, kind), one in zip(_CAUSE, flat, strict=True)})
        _, number = keys_of(pa.concat_tables([asked, table.select(names)]), names)
        of_causes, of_rows = number[: asked.num_rows], number[asked.num_rows :]
        ends = np.cumsum([len(some_causes) for some_causes in causes])
        for some_causes, end in zip(causes, ends.tolist(), strict=True):
            rows = np.flatnonzero(np.isin(of_rows, of_causes[end - len(some_causes) : end]))[:MAX_EVIDENCE]
            shown = table.take(pa.array(rows)).select(["connection_id", "exchange_id", "time_ns", "note"])
            yield tuple(Evidence(*one.values()) for one in shown.to_pylist())

    def _cases(self, tallies: Mapping[tuple[Any, ...], dict[str, Any]]) -> Iterator[_Case]:
        rows = self.resolved("cases").to_pylist()
        failing = {_source(row) for row in rows}
        fine: dict[tuple[Any, ...], tuple[int, int]] = {}
        succeeded = self.resolved("fine")
        names = (*(name for name, _ in (*_SOURCE, *_TARGET)), "last", "count")
        for *place, partition, last, count in zip(*(succeeded.column(name).to_pylist() for name in names), strict=True):
            if last is not None and tuple(place[: len(_SOURCE)]) in failing:
                for target in {(*place, partition), (*place, None)}:
                    latest, before = fine.get(target, (last, 0))
                    fine[target] = max(latest, last), before + count
        for row in rows:
            error = error_by_code(row["error_code"])
            target = (*_source(row), row["name"], row["topic"], row["partition"])
            done, successes = fine.get(target, (None, 0))
            solved, lasted = False, 0
            if row["last"] is not None and row["first"] is not None:
                solved = done is not None and done > row["last"]
                start = row["first"] if solved or done is None else max(row["first"], done)
                lasted = row["last"] - start
            case = _Case(row, error, solved, successes, lasted, None)
            tally = tallies.get(case.cause)
            if tally is not None:
                case.severity = self._severity(case, tally["count"])
                if case.severity is not None:
                    yield case

    def _severity(self, case: _Case, total: int) -> Severity | None:
        """`total`: exchanges of the client and API with this error, whatever they are about."""
        limits, row, error = self.thresholds, case.row, case.error
        settles = "program" if error is None else error.settled_by(row["api"])
        works = is_work(row["api"])
        many = row["count"] >= limits.many or total >= limits.many * FLOOD
        found: Severity | None
        if settles == "protocol" and case.solved and row["count"] <= limits.many * case.successes:
            return None
        if settles == "answer":
            # Tools ask for a group by one type after the other (ConsumerGroupDescribe, DescribeGroups).
            found = "warning" if many and not str(row["api"]).endswith("GroupDescribe") else "note"
        elif (settles not in ("client", "protocol") and (error is None or not error.retriable or not case.solved)) or (
            not case.solved
            and case.lasted >= (limits.stuck if case.successes or settles == "protocol" else limits.lasting)
            and total >= limits.at_least
        ):
            found = "error" if works else "warning"
        elif many or (case.lasted >= limits.lasting and total >= limits.at_least):
            found = "warning"
        else:
            found = "note" if total >= limits.at_least else None
        # Brokers and controllers resolve most refusals among themselves, except those that somebody else has to (then a
        # node cannot join its cluster), and those that last.
        if found is not None and (is_broker(row["client_id"], ()) or _is_internal(row["api"])):
            stays = not case.solved and settles in ("operator", "program", "rights")
            if stays and not case.successes and case.lasted >= limits.lasting and total >= limits.at_least:
                return "error"
            stays = stays or (not case.solved and case.lasted >= limits.stuck)
            found = "warning" if found == "error" or (found == "warning" and stays) else "note"
        return found

    def _finding(
        self,
        cases: list[_Case],
        rows: list[dict[str, Any]],
        evidence: tuple[Evidence, ...],
        says: Mapping[tuple[Any, ...], list[dict[str, Any]]],
    ) -> Finding:
        """`rows`: the tallies of the cases' causes."""
        severity = min((case.severity for case in cases if case.severity), key=SEVERITIES.index)
        codes, apis, who = (_ranked(rows, *names) for names in (("error_code",), ("api",), ("client_id", "client_ip")))
        code, lead = codes[0][0], rows[0]
        error = error_by_code(code)
        words = [word for row in rows for word in says.get(_cause(row), [])]
        about = [(_TOPIC, name) for name in _most((case.row["topic"], case.row) for case in cases)]
        kinds = sorted({row["kind"] for row in words} - {_MESSAGE})
        about += [(kind, text) for kind in kinds for text in _most(_texts(words, kind))]
        messages = _most(_texts(words, _MESSAGE))
        count, errors = (sum(row[name] for row in rows) for name in ("count", "errors"))
        firsts = [row["first"] for row in rows if row["first"] is not None]
        lasts = [row["last"] for row in rows if row["last"] is not None]
        level = "partition-level error" if sum(row["partitions"] for row in rows) == errors else "error"
        one_client = len(who) == 1
        whom = client(lead) if one_client else plural(len(who), "client")
        noun = " and ".join(word(name) for (name,) in apis)
        responses = plural(count, f"{noun} response" if len(apis) <= SHOWN - 1 else "response")
        times = "" if errors == count else f" ({errors:,} in all)"
        said = f": {quoted(messages[0])}" if messages else ""
        title = (
            f"{responses} to {whom}{in_cluster(self.clusters, lead['cluster'])} with {level} "
            f"{' and '.join(_name_of(one) for (one,) in codes[:3])}{_about(about)}{times}{said}"
        )
        topics = [name for kind, name in about if kind == _TOPIC]
        settles = "program" if error is None else error.settled_by(apis[0][0])
        return self.finding(
            severity,
            title,
            meaning=self._meaning(code, error, settles, cases),
            advice=f"{(error and error.advice_in(apis[0][0])) or _UNKNOWN}.",
            subject={
                "client_id": lead["client_id"] if one_client else None,
                "client_ip": lead["client_ip"] if len({ip for _, ip in who}) == 1 else None,
                "api": apis[0][0] if len(apis) == 1 else None,
                "topic": topics[0] if len(topics) == 1 else None,
                "error_code": code,
                **({} if lead["cluster"] is None else {"cluster": lead["cluster"]}),
            },
            count=count,
            first=min(firsts, default=None),
            last=max(lasts, default=None),
            evidence=evidence,
            values={
                "exchanges": count,
                "errors": errors,
                "retriable": error is not None and error.retriable,
                "settles": settles,
                "solved": all(case.solved for case in cases),
                "clients": len(who),
                "worst_clients": [client({"client_id": name, "client_ip": ip}) for name, ip in who[:MAX_NAMES]],
                "apis": [name for (name,) in apis[:MAX_NAMES]],
                "codes": [one for (one,) in codes],
                "topics": topics[:MAX_NAMES],
                "names": [name for kind, name in about if kind != _TOPIC][:MAX_NAMES],
                "messages": messages[:MAX_NAMES],
            },
        )

    @staticmethod
    def _meaning(code: int, error: KafkaError | None, settles: str, cases: Sequence[_Case]) -> str:
        known = "The meaning of this code is unknown"
        if error is not None and error.meaning is not None:
            known = f"{error.name}: {error.meaning}"
        who = _most((case.who, case.row) for case in cases)
        worst = ""
        if len(who) > 1:
            names = ", ".join(client({"client_id": name, "client_ip": ip}) for name, ip in who[:SHOWN])
            worst = f" Clients: {names}{f' and {len(who) - SHOWN:,} more' if len(who) > SHOWN else ''}."
        retried = settles == "client" or (error is not None and error.retriable)
        solved = sum(case.solved for case in cases)
        longest = max(case.lasted for case in cases)
        lasted = f" It lasted up to {elapsed(longest)}." if longest else ""
        acts = _ACTS.get(settles, "")
        if not retried:
            return f"{known}.{worst} {acts}"
        if solved == len(cases):
            return f"{known}.{worst} The client tried again, and later attempts succeeded.{lasted}"
        outcome = (
            "No later attempt in the capture succeeded"
            if not solved
            else f"{len(cases) - solved:,} of {len(cases):,} did not succeed later"
        )
        return f"{known}.{worst} Clients retry by themselves. {outcome}.{lasted}" + (
            f" {acts}" if settles not in ("client", "protocol", "answer") else ""
        )


def _divided(cases: Sequence[_Case]) -> Iterator[list[_Case]]:
    """What is worth more than a note, with notes about the same things; then the other notes."""
    serious = [case for case in cases if case.severity != "note"]
    about = {case.about for case in serious}
    rest = [case for case in cases if case.severity == "note" and case.about not in about]
    if serious:
        yield [*serious, *(case for case in cases if case.severity == "note" and case.about in about)]
    if rest:
        yield rest


def _ranked(rows: Iterable[Mapping[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """Values of some columns, those with the most exchanges first."""
    return _most((tuple(row[name] for name in names), row) for row in rows)


def _most(found: Iterable[tuple[Any, Mapping[str, Any]]]) -> list[Any]:
    """The values that are not None, the most frequent first, then the earliest."""
    totals: dict[Any, tuple[int, int]] = {}
    for value, row in found:
        if value is not None:
            count, first = row["count"], row["first"] or 0
            before = totals.get(value)
            totals[value] = (count, first) if before is None else (before[0] + count, min(before[1], first))
    return sorted(totals, key=lambda value: (-totals[value][0], totals[value][1], str(value)))


def _texts(words: Iterable[Mapping[str, Any]], kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((row["text"], row) for row in words if row["kind"] == kind)


def _name_of(code: int) -> str:
    error = error_by_code(code)
    return f"code {code}" if error is None else error.name


@lru_cache(maxsize=1024)  # names come from the tables
def _is_internal(name: str | None) -> bool:
    api = None if name is None else api_by_name(name)
    return api is not None and is_between_brokers(api.key)


def _about(about: list[tuple[str, str]]) -> str:
    """` for topics a and b`, ` for group g`."""
    by_kind: dict[str, list[str]] = {}
    for kind, name in about:
        by_kind.setdefault(kind, []).append(name)
    phrases = [f"{kind if len(names) == 1 else f'{kind}s'} {some(names)}" for kind, names in by_kind.items()]
    return f" for {', '.join(phrases)}" if phrases else ""


def _kind(cause: Cause, group: str | None, transaction: str | None) -> str:
    """The kind of thing that a cause names; for the key of FindCoordinator, what its request asked for."""
    if cause.name == group:
        return _KINDS["group_id"]
    if cause.name == transaction:
        return _KINDS["transactional_id"]
    return _KINDS.get(cause.field or "", "key")


def _source_of(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The key columns of `_SOURCE`."""
    return {**clients(batch), **clusters(batch), "api": encoded(batch, "api")}


def _said(causes: Sequence[Cause], group: str | None, transaction: str | None) -> dict[tuple[int, str, str], None]:
    """Code, kind and text of what the errors of an exchange name, and of their messages."""
    found: dict[tuple[int, str, str], None] = {}
    for cause in causes:
        if cause.field is not None and cause.name:
            found[cause.code, _kind(cause, group, transaction), cause.name] = None
        elif cause.topic is None and (group or transaction):
            kind = "group_id" if group else "transactional_id"
            found[cause.code, _KINDS[kind], group or transaction or ""] = None
        if cause.message:
            found[cause.code, _MESSAGE, shortened(cause.message)] = None
    return found


def _notes(causes: Sequence[Cause]) -> list[str]:
    """For each error of an exchange, what the exchange shows of its code."""
    notes = {
        code: _note([cause for cause in causes if cause.code == code]) for code in {cause.code for cause in causes}
    }
    return [notes[cause.code] for cause in causes]


def _note(some_causes: Sequence[Cause]) -> str:
    """What an exchange shows: the broker's message, otherwise what was refused."""
    message = next((cause.message for cause in some_causes if cause.message), None)
    if message is not None:
        return quoted(message)
    # Topics may be known only by id by now.
    return some(list(dict.fromkeys(cause.name for cause in some_causes if cause.name)))


def _is_elsewhere(api: str | None, cause: Cause) -> bool:
    """Whether another detector reports it."""
    code = cause.code
    return (
        api in _LOGINS
        or code in _ANYWHERE
        or (cause.partition and cause.code_field == CODE and code in _OF_PARTITIONS)
        or code in _ELSEWHERE.get(api or "", ())
    )


def _are_elsewhere(apis: pa.Array, codes: pa.Array) -> pa.Array:
    """The same for codes of partitions."""

    def among(values: Iterable[int]) -> pa.Array:
        return pc.is_in(codes, value_set=pa.array(sorted(values), pa.int64()))

    found = among(_ANYWHERE | _OF_PARTITIONS)
    for api, some_codes in _ELSEWHERE.items():
        found = pc.or_(found, pc.and_(pc.fill_null(pc.equal(apis, api), False), among(some_codes)))
    return found
