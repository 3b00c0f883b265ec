"""Rows of the table `exchanges`, its columns described in `schemas`.

`resolve.py` adds facts from other messages (`broker_id`, names of topic ids, the topics of a fetch session) as the
column `_pending` says. Names that were known when a message was read are in the rows already.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec
import pyarrow as pa

from kafkasniff.kafka.apis.dissectors import FETCH
from kafkasniff.kafka.apis.entities import Mentions, mentions, only, record_count, text
from kafkasniff.kafka.connection.waits import UNLIMITED_NS, Role, WaitReason, asked_limit_ns, planned_role, wait_plan
from kafkasniff.kafka.messages.message_plan import client_software
from kafkasniff.model import Exchange, Message, Problem
from kafkasniff.tables.rows.sessions import session_step
from kafkasniff.tables.rows.staged import STAGED, StagedParts, unread

# -- the wait that a request asks for ----------------------------------------------------------------------------------


class RequestedWait(NamedTuple):
    """A request's sender, and the wait that it asked for."""

    sender: Role | None = None
    microseconds: int | None = None
    """The longest wait; None: the request could not be read, or has no such wait."""
    reason: WaitReason | None = None


UNKNOWN: Final = RequestedWait()
_NO_WAIT: Final[dict[Role | None, RequestedWait]] = {
    sender: RequestedWait(sender, 0) for sender in (None, *get_args(Role))
}


def asked_wait(exchange: Exchange) -> RequestedWait:
    """The sender, and the wait within the exchange's latency, or the allowed wait if nothing answered. Hot.

    Time that the request spent queued after earlier ones of its connection (`behind_ns`, `muted_ns`) does not count.
    """
    request = exchange.request
    body = None if request is None else request.body
    if request is None or body is None:
        return UNKNOWN
    plan = wait_plan(request.api_key)
    if plan is None:
        # Most APIs.
        return _NO_WAIT[None]
    sender = planned_role(plan, body) if plan.replica_ids else None
    if plan.limits and body.keys().isdisjoint(plan.limits):
        return RequestedWait(sender)  # the request is cut before them
    reason = plan.reason
    limit = None if reason is None else asked_limit_ns(plan, body)
    if reason is None or limit == 0:
        return _NO_WAIT[sender]
    latency = exchange.latency_ns
    if exchange.response is None or latency is None:
        wait = UNLIMITED_NS if limit is None else limit
    else:
        wait = latency - (exchange.behind_ns or 0) - (exchange.muted_ns or 0)
        wait = max(wait, 0)
        if limit is not None and limit < wait:
            wait = limit
    return RequestedWait(sender, wait // 1000, reason)


# -- rows --------------------------------------------------------------------------------------------------------------

PARTITION_BYTES: Final = 1000
"""Memory of one waiting element of `partitions` or `topics`, as Python objects."""
ROW_BYTES: Final = 1000
"""Memory of the columns of bounded size per waiting row."""


def microseconds(nanoseconds: int | None) -> int | None:
    """Nanoseconds as the microseconds of a timestamp."""
    # Floored, also below zero, so that two rows never change their order by the rounding.
    return None if nanoseconds is None else nanoseconds // 1000


def capture_name(name: str | None) -> str | None:
    r"""The name with bytes that are not UTF-8 as `\xNN`: file names may have them (PEP 383), Arrow strings may not."""
    return None if name is None else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _kinds(problems: Iterable[Problem]) -> list[str]:
    return sorted({problem.kind for problem in problems})


def _value(message: Message | None, field: str) -> Any:
    return None if message is None or message.body is None else message.body.get(field)


def exchange_row(
    exchange: Exchange,
    body_json: Callable[[Message], str | None] | None,
    *,
    unnamed_bodies: bool = False,
    more: Iterable[Problem] = (),
    headers: bool = False,
) -> dict[str, Any]:
    """One row of `exchanges`, values by column in the order of its staged schema.

    `body_json` renders a message's body as in the JSON lines, or returns None if it is not wanted; with None both body
    columns are null. Packet, time and API are those of the request; for an orphan response, its own. `unnamed_bodies`:
    the bodies hold topic ids without a name. `more`: problems of its messages that were found later. `headers`: columns
    from bodies are null, whether or not bodies were read. Raises ValueError for an exchange that has neither request
    nor response.
    """
    request, response = exchange.request, exchange.response
    seen = request if request is not None else response
    if seen is None:
        raise ValueError("an exchange without request and response")
    if headers:
        request, response = _without_body(request), _without_body(response)
    decoded = response is not None and response.body is not None
    errors = () if response is None else response.errors
    client, broker = seen.client, seen.broker
    problems = [*exchange.problems, *(request.problems if request else ()), *(response.problems if response else ())]
    problems += more
    named = mentions(request, response)
    sender, wait, reason = UNKNOWN if headers else asked_wait(exchange)
    behind, muted = exchange.behind_ns, exchange.muted_ns
    throttle, acks = _value(response, "throttle_time_ms"), _value(request, "acks")
    return {
        "capture": capture_name(seen.capture),
        "connection_id": exchange.connection_id,
        "exchange_id": exchange.exchange_id,
        "time": microseconds(seen.time_ns),
        "time_ns": seen.time_ns,
        "client_ip": None if client is None else client.address,
        "client_port": None if client is None else client.port,
        "broker_ip": None if broker is None else broker.address,
        "broker_port": None if broker is None else broker.port,
        "broker_id": exchange.broker_id,
        "api_key": seen.api_key,
        "api": seen.api,
        "api_version": seen.api_version,
        "correlation_id": seen.correlation_id,
        "client_id": text(seen.client_id),
        "software_name": exchange.software_name or _software(request, 0),
        "software_version": exchange.software_version or _software(request, 1),
        "status": exchange.status,
        "request_size": None if request is None else request.size,
        "response_size": None if response is None else response.size,
        "latency_us": microseconds(exchange.latency_ns),
        "duration_us": microseconds(exchange.duration_ns),
        "throttle_time_ms": throttle if isinstance(throttle, int) else None,
        "error_code": errors[0].code if errors else (0 if decoded else None),
        "error": errors[0].name if errors else None,
        "error_count": len(errors) if decoded else None,
        "group_id": only(named.groups),
        "member_id": _member_id(request, response),
        "transactional_id": only(named.transactions),
        "acks": acks if isinstance(acks, int) else None,
        "record_count": record_count(named),
        "topics": list(named.topics),
        "partitions": [msgspec.structs.asdict(facts) for facts in named.partitions.values()],
        "request_body": _body(request, body_json),
        "response_body": _body(response, body_json),
        "problems": _kinds(problems) if problems else [],
        "retransmits": exchange.retransmits,
        "sender": sender,
        # Nearly always 0.
        "behind_us": None if headers else behind // 1000 if behind else behind,
        "muted_us": None if headers else muted // 1000 if muted else muted,
        "wait_us": wait,
        "waits_for": reason,
        "_pending": _pending(named, unnamed_bodies and body_json is not None, request, response),
    }


def _without_body(message: Message | None) -> Message | None:
    if message is None or message.body is None:
        return message
    return msgspec.structs.replace(message, body=None, errors=())


def _pending(named: Mentions, bodies: bool, request: Message | None, response: Message | None) -> bytes | None:
    session = None if request is None or request.api_key != FETCH else session_step(request, response)
    if session is None and not named.unnamed and not bodies:
        return None
    return msgspec.msgpack.encode(StagedParts(named.unnamed, bodies, session))


def _software(request: Message | None, which: Literal[0, 1]) -> str | None:
    """Name or version of the client software, from a request that has it; `kafkasniff.enrich` adds it to others."""
    fields = None if request is None else client_software(request.api_key)
    return None if fields is None else text(_value(request, fields[which]))


def _member_id(request: Message | None, response: Message | None) -> str | None:
    # A member that joins for the first time sends "" and receives its id; LeaveGroup has a list of members as of v3.
    members = _value(request, "members")
    if isinstance(members, list) and len(members) == 1 and isinstance(members[0], dict):
        asked = text(members[0].get("member_id"))
    else:
        asked = text(_value(request, "member_id"))
    return asked or text(_value(response, "member_id")) or asked


def _body(message: Message | None, body_json: Callable[[Message], str | None] | None) -> str | None:
    if message is None or message.body is None or body_json is None:
        return None
    return body_json(message)


class ExchangeRows:
    """Rows of `exchanges` that wait to become a record batch; `size` shows when it is time."""

    def __init__(
        self,
        body_json: Callable[[Message], str | None] | None,
        *,
        headers: bool = False,
        columns: Container[str] = STAGED["exchanges"].names,
    ) -> None:
        """`columns`: those that are wanted, others are `unread`."""
        self._body_json = body_json
        self._headers = headers
        self._columns = columns
        self._rows: list[tuple[Any, ...]] = []
        self.size = 0
        """Estimated bytes of the waiting rows: columns without a bound are counted, the rest is a constant."""

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, exchange: Exchange, *, unnamed_bodies: bool = False, more: Iterable[Problem] = ()) -> None:
        """Add the row of one exchange; arguments as for `exchange_row`. Hot."""
        row = exchange_row(exchange, self._body_json, unnamed_bodies=unnamed_bodies, more=more, headers=self._headers)
        # Only the whole run knows it (`LearnedNames.broker_ids`).
        row["broker_id"] = None
        self._rows.append(tuple(row.values()))
        self.size += ROW_BYTES + PARTITION_BYTES * (len(row["topics"]) + len(row["partitions"]))
        for name in _LONG:
            value = row[name]
            if value is not None:
                self.size += len(value)

    def take(self) -> pa.RecordBatch:
        """Return the waiting rows as one record batch of the staged schema and forget them."""
        count, schema = len(self._rows), STAGED["exchanges"]
        columns: Iterable[Iterable[Any]] = zip(*self._rows, strict=True) if self._rows else ([] for _ in schema)
        arrays = [
            pa.array(column, field.type) if field.name in self._columns else unread(field, count)
            for column, field in zip(columns, schema, strict=True)
        ]
        self._rows = []
        self.size = 0
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


_LONG: Final = ("request_body", "response_body", "client_id", "group_id", "member_id", "transactional_id", "_pending")
"""Columns whose values are bounded only by the size of a message."""
