"""Clients whose authentication fails, and sessions that end because their client does not authenticate again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, in_any, integers, only, order_columns
from kafkasniff.analysis.detectors.connections import (
    CONNECTIONS,
    MAX_CONNECTIONS,
    MAX_DETAIL,
    REJECTED,
    add_connections,
    add_problems,
    cause_of,
    connections_by_id,
    connections_shape,
    problem_evidence,
    problem_times,
    problems_by_time,
    problems_shape,
)
from kafkasniff.analysis.detectors.detector import Detector, Effect
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, Tally, clients
from kafkasniff.analysis.detectors.wording import client, elapsed, plural, some, span, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.engine.roles import Bodies
from kafkasniff.kafka.schema.codes import error_by_code, error_name
from kafkasniff.text.printable import cut, printable, word
from kafkasniff.text.times import clock_time

SASL_REFUSED: Final = "sasl-refused"
UNSUPPORTED_SASL_MECHANISM: Final = 33
ILLEGAL_SASL_STATE: Final = 34
SASL_AUTHENTICATION_FAILED: Final = 58
OAUTHBEARER: Final = "OAUTHBEARER"
SEVERAL: Final = 3
"""Principals that are refused at the same time: that many do not mistype their passwords together."""
MAX_USERS: Final = 20
"""Maximum number of principals in the values of a finding."""
FOREVER: Final = (1 << 63) - 1
_SESSION: Final = r'"session_lifetime_ms":[1-9]'
_TAKES: Final = re.compile(r"; it takes (.+)$")
"""How `connection.opening` ends when a client asks for a mechanism that the listener does not take."""


def taken_mechanisms(detail: str) -> str | None:
    """The mechanisms that a listener takes, from the detail of a problem that names them."""
    match = _TAKES.search(detail)
    return None if match is None else match.group(1)


class _Login(msgspec.Struct, frozen=True, order=True):
    """An authentication that was accepted or refused."""

    time: int
    user: str
    """The principal of the connection, or its client if that is unknown."""
    who: str
    """Its client."""
    broker: str

    @classmethod
    def of(cls, connection: dict[str, Any], time: int) -> _Login:
        who = client(connection)
        return cls(time, connection["principal"] or who, who, connection["broker"])


class _Accepted:
    """When users were accepted last, by mechanism and user, at any client and at each; and by which brokers."""

    def __init__(self, accepted: Mapping[str | None, Iterable[_Login]]) -> None:
        self.last: dict[tuple[str | None, ...], int] = {}
        self.brokers: dict[tuple[str | None, ...], set[str]] = {}
        for mechanism, logins in accepted.items():
            for login in logins:
                own = mechanism, login.user, login.who
                for key in (own, own[:2]):
                    self.last[key] = max(login.time, self.last.get(key, login.time))
                self.brokers.setdefault(own, set()).add(login.broker)


class _Refusal(msgspec.Struct, frozen=True):
    """Authentications of a client that a broker refused for one reason."""

    row: dict[str, Any]
    reason: str
    mechanism: str | None
    principal: str | None
    takes: str | None
    """The mechanisms that the listener takes, if it named them and the client's is not among them."""
    evidence: tuple[Evidence, ...]
    by_token: bool = False

    @property
    def user(self) -> str:
        return self.principal or client(self.row)

    def accepted_before(self, accepted: _Accepted) -> int | None:
        """When this client was accepted last as the same user; None: never, or the user still is, at any client."""
        first, last = self.row["first"], accepted.last.get((self.mechanism, self.user))
        if first is None or last is None or last >= first:
            return None
        return accepted.last.get((self.mechanism, self.user, client(self.row)))

    def accepted_elsewhere(self, accepted: _Accepted) -> list[str]:
        """Brokers that accept the same client as the same user, if the one that refuses it never does."""
        mine = accepted.brokers.get((self.mechanism, self.user, client(self.row)), set())
        return [] if self.row["broker"] in mine else sorted(mine)


_RENEW_TOKEN: Final = (
    "Renew the delegation token before its expiry, and create a new one after its maximum lifetime "
    "(delegation.token.expiry.time.ms, delegation.token.max.lifetime.ms)."
)


class SaslThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `SaslFailures`."""

    at_least: Annotated[int, Meta(ge=1, description="Report from this many failures of a client at a broker.")] = 1


class SaslFailures(Detector[SaslThresholds]):
    """Authentication that a broker refuses, with an error code or by closing the connection after raw tokens.

    If the listener does not support the client's mechanism, the finding lists those that it supports. If several
    principals are refused and nobody is accepted after that, or they were accepted before, one finding says that what
    checks their credentials has failed, or is unreliable if it refuses and accepts the same clients in turns. It is a
    note if a connection renews its session twice within a second.

    Caveats: a broker that dies right after a raw token looks like a refusal.
    """

    name: ClassVar[str] = "sasl-failures"
    ends_connections = True
    summary: ClassVar[str] = "Clients whose authentication fails."
    parameters_type = SaslThresholds
    bodies: ClassVar[Bodies] = {("response", "SaslAuthenticate"): None}
    error_bodies = True

    _refused = Tally("refused", (*CLIENT, *BROKER, ("error_code", pa.int32())))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "error_code", *CLIENT_COLUMNS, "broker_ip", "broker_port", "response_body")
        apis = ("SaslHandshake", "SaslAuthenticate")
        return {
            "exchanges": TableReading((*ORDER, *own), apis),
            "connections": CONNECTIONS,
            "problems": TableReading(("connection_id", "time_ns", "kind", "detail"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        granted: Any = (("first", pa.int64(), "min"),)
        return {
            **super().shapes(),
            "problems": problems_shape(),
            "connections": connections_shape(),
            "granted": Shape(keys=(("connection_id", pa.int64()),), measures=granted),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        match table:
            case "connections":
                add_connections(self, "connections", only(batch, pc.is_valid(column(batch, "sasl_mechanism"))))
            case "problems":
                add_problems(self, batch, (REJECTED, SASL_REFUSED))
            case _:
                session = pc.match_substring_regex(column(batch, "response_body"), _SESSION)
                renewable = only(batch, pc.fill_null(session, False))
                times = {"connection_id": column(renewable, "connection_id"), "first": column(renewable, "time_ns")}
                self.parts["granted"].add(times)
                asked = in_any(batch, "api", ("SaslHandshake", "SaslAuthenticate"))
                failed = pc.not_equal(pc.fill_null(column(batch, "error_code"), 0), 0)
                batch = only(batch, pc.and_(asked, failed))
                names = [error_name(code) or f"error {code}" for code in column(batch, "error_code").to_pylist()]
                keys = {**clients(batch, broker=True), "error_code": column(batch, "error_code")}
                self._refused.add(self, batch, keys, pa.array(names, pa.string()))

    def findings(self) -> list[Finding]:
        known = connections_by_id(self, "connections")
        takes: dict[int, str] = {}
        closed: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for problem in problems_by_time(self):
            if problem["kind"] == SASL_REFUSED:
                mechanisms = taken_mechanisms(cause_of(problem))
                if mechanisms is not None:
                    takes[problem["connection_id"]] = mechanisms
                continue
            connection = known.get(problem["connection_id"])
            if connection is not None:
                key = tuple(
                    connection[name] for name in ("client_id", "client_ip", "broker", "sasl_mechanism", "principal")
                )
                closed.setdefault(key, []).append(problem)
        refusals = []
        for row, evidence in self._refused.rows(self):
            shown = evidence[0].connection_id if evidence else 0
            connection = known.get(shown, {})
            reason = error_name(row["error_code"]) or f"error {row['error_code']}"
            words = connection.get("authentication_error") or ""
            if words.startswith(f"{reason}: "):
                reason = cut(printable(words), MAX_DETAIL)
            refusals.append(
                _Refusal(
                    row,
                    reason,
                    connection.get("sasl_mechanism"),
                    connection.get("principal"),
                    takes.get(shown),
                    evidence,
                    by_token=bool(connection.get("by_token")),
                )
            )
        for key, rows in closed.items():
            who = dict(zip(("client_id", "client_ip", "broker"), key[:3], strict=True)) | {"error_code": None}
            row = {**who, **problem_times(rows), "count": len(rows)}
            refusals.append(_Refusal(row, "it closed the connection", key[3], key[4], None, problem_evidence(rows)))
        return self._together(
            [refusal for refusal in refusals if refusal.row["count"] >= self.thresholds.at_least], known
        )

    def _together(self, refusals: list[_Refusal], known: dict[int, dict[str, Any]]) -> list[Finding]:
        """One finding for each mechanism that no longer works for anybody, and one for each other refusal."""
        accepted: dict[str | None, list[_Login]] = {}
        refused: dict[str | None, list[_Login]] = {}
        for connection in known.values():
            into = {"succeeded": accepted, "failed": refused}.get(connection["authentication"])
            if into is not None and connection["time_ns"] is not None:
                into.setdefault(connection["sasl_mechanism"], []).append(_Login.of(connection, connection["time_ns"]))
        granted = {row["connection_id"]: row["first"] for row in self.parts["granted"].table().to_pylist()}
        for number in granted.keys() & known.keys():
            mechanism = known[number]["sasl_mechanism"]
            accepted.setdefault(mechanism, []).append(_Login.of(known[number], granted[number]))
        index = _Accepted(accepted)
        by_mechanism: dict[str | None, list[_Refusal]] = {}
        for refusal in refusals:
            if refusal.takes is None and refusal.row["error_code"] in {None, SASL_AUTHENTICATION_FAILED}:
                by_mechanism.setdefault(refusal.mechanism, []).append(refusal)
        findings: list[Finding] = []
        covered: set[int] = set()
        """Refusals (`id`) that a finding about all principals covers."""
        for mechanism, alike in by_mechanism.items():
            yes, no = accepted.get(mechanism, []), refused.get(mechanism, [])
            again = _accepted_again(yes, no)
            # The earliest time of each is the last to be set.
            users = {login.user: login.time for login in sorted(no, reverse=True)}
            worked = {login.user for login in yes if login.time < users.get(login.user, 0)}
            nobody = not any(login.time > min(users.values(), default=0) for login in yes)
            if sum(again.values()) >= SEVERAL:
                covered.update(map(id, alike))
                findings.append(self._unreliable(alike, again))
            elif len(users) >= SEVERAL and (len(worked) >= SEVERAL or nobody):
                covered.update(map(id, alike))
                findings.append(self._backend(alike, sorted(users), len(worked)))
        for refusal in refusals:
            if id(refusal) in covered:
                continue
            renewals = [
                granted.get(each.connection_id, FOREVER) < (each.time_ns or 0)
                for each in refusal.evidence[:MAX_EVIDENCE]
            ]
            if refusal.row["error_code"] == ILLEGAL_SASL_STATE and renewals and all(renewals):
                findings.append(self._too_soon(refusal))
                continue
            before, elsewhere = refusal.accepted_before(index), refusal.accepted_elsewhere(index)
            findings.append(self._finding(refusal, before, elsewhere, any(renewals)))
        return findings

    def _backend(self, refusals: list[_Refusal], users: list[str], worked: int) -> Finding:
        """Several users are refused and nobody is accepted."""
        times = [refusal.row["first"] for refusal in refusals if refusal.row["first"] is not None]
        since = f" since {clock_time(min(times))[:-3]}" if times else ""
        before = f"; {'all' if worked == len(users) else f'{worked:,}'} of them were accepted before" if worked else ""
        return self._of_all(
            refusals,
            users,
            since,
            before,
            meaning=(
                "Several users are refused at the same time, and "
                + (
                    "their credentials worked before: what checks them has failed, not their passwords."
                    if worked
                    else "nobody is accepted: what checks their credentials fails or is set up wrongly, or somebody "
                    "tries out names."
                )
            ),
            advice=(
                "Check what the listener asks (the broker's log names it): LDAP or another directory, the endpoint of "
                "the token keys (JWKS) and the clocks for OAUTHBEARER, the KDC for GSSAPI, and for SCRAM the "
                "credentials in the cluster's metadata. Changing passwords of clients does not help."
            ),
            values={"accepted_before": worked},
        )

    def _unreliable(self, refusals: list[_Refusal], again: Mapping[str, int]) -> Finding:
        """The same users are accepted and refused in turns; `again`: how often each was accepted after a refusal."""
        users = sorted({refusal.user for refusal in refusals})
        times = sum(again.values())
        return self._of_all(
            refusals,
            users,
            "",
            f"; {plural(times, 'time')} the same client was accepted after that",
            meaning=(
                "Brokers accept and refuse the same clients in turns, so what checks their credentials is unreliable, "
                "not their passwords. Many clients, such as Kafka's for Java, do not try again after a refusal."
            ),
            advice=(
                "Check what the listener asks (the broker's log names it): one of several directory servers or token "
                "keys may be out of date, overloaded or cut off. Behind a load balancer, compare the credentials of "
                "the brokers."
            ),
            values={"accepted_again": times},
        )

    def _of_all(
        self,
        refusals: list[_Refusal],
        users: list[str],
        since: str,
        besides: str,
        *,
        values: dict[str, Any],
        **texts: str,
    ) -> Finding:
        """One finding about all principals of a mechanism."""
        refusals = sorted(refusals, key=lambda refusal: (-refusal.row["count"], refusal.user))
        worst, count = refusals[0], sum(refusal.row["count"] for refusal in refusals)
        brokers = sorted({refusal.row["broker"] for refusal in refusals})
        times = [
            refusal.row[name] for refusal in refusals for name in ("first", "last") if refusal.row[name] is not None
        ]
        how = "" if worst.mechanism is None else f" with {word(worst.mechanism)}"
        evidence = sorted((each for refusal in refusals for each in refusal.evidence), key=lambda one: one.time_ns or 0)
        return self.finding(
            "error",
            f"{plural(count, 'authentication')} of {plural(len(users), 'principal')} ({some(users)}){how} refused by "
            f"{some(brokers)}{since}: {worst.reason}{besides}",
            **texts,
            subject={
                "client_id": None,
                "client_ip": None,
                "broker": brokers[0] if len(brokers) == 1 else None,
                "error_code": worst.row["error_code"],
            },
            count=count,
            first=min(times, default=None),
            last=max(times, default=None),
            evidence=tuple(evidence[:MAX_EVIDENCE]),
            values={"mechanism": worst.mechanism, "principals": users[:MAX_USERS], **values},
        )

    def _too_soon(self, one: _Refusal) -> Finding:
        """On connections that had authenticated."""
        row, how = one.row, "" if one.mechanism is None else f" with {word(one.mechanism)}"
        return self.row_finding(
            row,
            one.evidence,
            "note",
            f"{plural(row['count'], 're-authentication')} of {client(row)}{how} refused by {row['broker']}: less than "
            "a second after the last one",
            meaning=(
                "A connection may renew its session once a second (KIP-368); before that, brokers answer "
                f"{one.reason}, and the client has to connect again. Clients do this if a session is very short, "
                "because their token is about to expire."
            ),
            advice=(
                "Let the client get new tokens earlier (sasl.login.refresh.window.factor), or issue tokens that are "
                "valid for longer."
            ),
            subject=("client_id", "client_ip", "broker", "error_code"),
            values={"mechanism": one.mechanism, "principal": one.principal},
        )

    def _finding(self, one: _Refusal, before: int | None, elsewhere: list[str], renewing: bool) -> Finding:
        """`before`: when the client was accepted last, `elsewhere`: by which others; `renewing`: after a session."""
        row, takes = one.row, one.takes
        how = "" if one.mechanism is None else f" with {word(one.mechanism)}"
        error = None if row["error_code"] is None else error_by_code(row["error_code"])
        why = one.reason if takes is None else f"{one.reason}, the listener takes {takes}"
        if takes is not None:
            meaning = (
                "The client asks for a SASL mechanism that the listener does not have (sasl.enabled.mechanisms). Its "
                "user and password were not checked."
            )
            advice = (
                f"Set the client's sasl.mechanism to what the listener takes ({takes}), or add the mechanism to "
                "sasl.enabled.mechanisms of the listener."
            )
        elif error is not None and error.code != SASL_AUTHENTICATION_FAILED:
            meaning, advice = f"{error.name}: {error.meaning}. No user and password were checked.", f"{error.advice}."
        elif elsewhere:
            meaning = (
                f"The same client is accepted as the same user by {some(elsewhere)}, so the brokers do not have the "
                "same credentials or settings."
            )
            advice = (
                "Compare the listener's settings of the brokers: for PLAIN the users in its sasl.jaas.config, for "
                "OAUTHBEARER and GSSAPI what checks them. For SCRAM, this broker may lag behind the cluster's metadata."
            )
        elif before is not None or renewing:
            since = "" if before is None else f" (last at {clock_time(before)[:-3]})"
            meaning = (
                f"The same principal was accepted before{since}, so its credentials were changed or deleted meanwhile, "
                "or a token has expired."
                + (
                    " The first refusal was for a session that had to be renewed (connections.max.reauth.ms, KIP-368): "
                    "the broker closes such a connection."
                    if renewing
                    else ""
                )
            )
            advice = (
                _RENEW_TOKEN
                if one.by_token
                else "Check that the client gets a new token in time (sasl.login.refresh.* of OAUTHBEARER), and the "
                "clocks of client, broker and token server."
                if one.mechanism == OAUTHBEARER
                else "Find out when the user's credentials were changed or deleted, and give the client the new ones; "
                "most clients read their password at the start only."
            )
        elif one.by_token:
            meaning = "The broker does not know this delegation token, or no longer: it has expired, or was removed."
            advice = _RENEW_TOKEN
        elif one.mechanism == OAUTHBEARER:
            meaning = (
                "The broker does not accept the token: it has expired, or its signature, issuer or audience is not "
                "what the listener expects."
            )
            advice = (
                "Compare the token's claims (exp, iss, aud) with the listener's sasl.oauthbearer.jwks.endpoint.url, "
                ".expected.issuer and .expected.audience, and the clocks of client, broker and token server."
            )
        else:
            meaning = (
                "The broker does not know the user, or the password or token is wrong. Older clients only show it as a "
                "connection that is closed again and again."
            )
            advice = (
                "Compare the client's sasl.jaas.config, sasl.mechanism and security.protocol with the listener's "
                "settings; the broker's log has more detail than its response to the client."
            )
        return self.row_finding(
            row,
            one.evidence,
            "error",
            f"{plural(row['count'], 'authentication')} of {client(row)}{how} refused by {row['broker']}: {why}",
            meaning=meaning,
            advice=advice,
            subject=("client_id", "client_ip", "broker", "error_code"),
            values={
                "mechanism": one.mechanism,
                "principal": one.principal,
                **({} if takes is None else {"taken": takes}),
                **({"accepted_before": True} if before is not None or renewing else {}),
            },
        )


def _accepted_again(accepted: Iterable[_Login], refused: Iterable[_Login]) -> Counter[str]:
    """How often each user, from the same client and at the same broker, was accepted right after a refusal."""
    outcomes: dict[tuple[str, str, str], list[tuple[int, bool]]] = {}
    for done, logins in ((True, accepted), (False, refused)):
        for login in logins:
            outcomes.setdefault((login.user, login.who, login.broker), []).append((login.time, done))
    found: Counter[str] = Counter()
    for (user, *_), times in outcomes.items():
        found[user] += sum(after and not before for (_, before), (_, after) in pairwise(sorted(times)))
    return found


_CONNECTION: Final[Any] = (("connection_id", pa.int64()),)
_WITHOUT_ANSWER: Final = ("unanswered", "no_response")


class ExpiredSessionThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `ExpiredSessions`."""

    at_least: Annotated[int, Meta(ge=1, description="Report from this many connections of a client to a broker.")] = 1
    soon: Annotated[
        Duration, Meta(ge=0, description="The connection ends this soon after the request that came too late.")
    ] = 2_000_000_000


class ExpiredSessions(Detector[ExpiredSessionThresholds]):
    """Connections that brokers close because their SASL session is over (`connections.max.reauth.ms`, KIP-368).

    The broker limits a session in its SaslAuthenticate response (`session_lifetime_ms`) and closes the connection at
    the first request after that, unless the client has authenticated again.

    Caveats: brokers do not send the lifetime to clients that authenticate with raw tokens or SaslAuthenticate v0.
    """

    name: ClassVar[str] = "expired-sessions"
    summary: ClassVar[str] = "Clients that do not authenticate again before their SASL session ends."
    parameters_type = ExpiredSessionThresholds
    bodies: ClassVar[Bodies] = {("response", "SaslAuthenticate"): None}

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "status", "latency_us", "response_body")
        return {"exchanges": TableReading((*ORDER, *own)), "connections": CONNECTIONS}

    def shapes(self) -> Mapping[str, Shape]:
        number = pa.int64()
        # In reverse order: the last authentication of each connection.
        order = ("before", "exchange_id")
        sessions: Any = tuple((name, number, "first") for name in (*order, "granted_ns", "lifetime_ms"))
        return {
            "sessions": Shape(keys=_CONNECTION, measures=sessions, order=order, keep="earliest", bound=MAX_CONNECTIONS),
            "lost": Shape(
                keys=_CONNECTION,
                measures=(("count", number, "sum"), ("first", number, "min"), ("last", number, "max")),
                weight="count",
                bound=MAX_CONNECTIONS,
            ),
            "connections": connections_shape(),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "connections":
            add_connections(self, "connections", only(batch, pc.is_valid(column(batch, "sasl_mechanism"))))
            return
        lost = only(batch, in_any(batch, "status", _WITHOUT_ANSWER))
        ones, time = np.ones(lost.num_rows, np.int64), column(lost, "time_ns")
        unanswered = in_any(lost, "status", ["unanswered"])
        first = pc.if_else(unanswered, time, pa.scalar(None, pa.int64()))
        self.parts["lost"].add(
            {"connection_id": column(lost, "connection_id"), "count": ones, "first": first, "last": time}
        )
        batch = only(batch, in_any(batch, "api", ["SaslAuthenticate"]))
        found = pc.struct_field(
            pc.extract_regex(column(batch, "response_body"), r'"session_lifetime_ms":(?P<number>[1-9]\d{0,15})[,}]'),
            "number",
        ).cast(pa.int64())
        known = pc.and_(pc.is_valid(found), pc.is_valid(column(batch, "time_ns")))
        batch, found = only(batch, known), found.filter(known)
        time = integers(column(batch, "time_ns"))
        granted = time + 1000 * integers(column(batch, "latency_us"))
        self.parts["sessions"].add(
            {**order_columns(batch), "before": -time, "granted_ns": granted, "lifetime_ms": found}
        )

    def findings(self) -> Iterator[Finding]:
        connections = connections_by_id(self, "connections")
        lost = {row["connection_id"]: row for row in self.parts["lost"].table().to_pylist()}
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for session in self.parts["sessions"].table().to_pylist():
            number = session["connection_id"]
            one, late = connections.get(number), lost.get(number)
            if one is None or late is None or one["ended"] not in {"fin", "rst"} or late["last"] is None:
                continue
            # With acks=0, all requests of a connection are without an answer.
            asked = late["last"] if late["first"] is None else late["first"]
            over = session["granted_ns"] + 1_000_000 * session["lifetime_ms"]
            if asked >= over and one["end_time_ns"] - asked <= self.thresholds.soon:
                key = tuple(one[name] for name in ("client_id", "client_ip", "broker"))
                found.setdefault(key, []).append(
                    {**one, **session, "time_ns": -session["before"], "asked": asked, "silent": late["first"] is None}
                )
        for rows in found.values():
            if len(rows) >= self.thresholds.at_least:
                yield self._finding(sorted(rows, key=lambda row: (row["asked"], row["connection_id"])))

    def _finding(self, rows: list[dict[str, Any]]) -> Finding:
        lifetime = min(row["lifetime_ms"] for row in rows)
        first, last = rows[0]["asked"], rows[-1]["asked"]
        silent = any(row["silent"] for row in rows)
        return self.finding(
            "error" if silent else "warning",
            f"{plural(len(rows), 'connection')} of {client(rows[0])} closed by {rows[0]['broker']}{span(first, last)}: "
            f"the SASL session of {elapsed(lifetime * 1e6)} was over, and the client had not authenticated again",
            meaning=(
                "The broker limits sessions (connections.max.reauth.ms) and closes a connection at the first request "
                "after that. The request is lost; the client has to connect, authenticate and send it again."
                + (" With acks=0 it does not: its records are lost." if silent else "")
            ),
            advice=(
                "Use a client that authenticates again in time (KIP-368: Kafka's Java client since 2.2, librdkafka "
                "since 2.2). If it already does, check whether its credentials or tokens expire earlier than the "
                "session. Otherwise raise connections.max.reauth.ms."
            ),
            subject=subject(rows[0], "client_id", "client_ip", "broker"),
            count=len(rows),
            first=first,
            last=last,
            evidence=tuple(
                Evidence(
                    row["connection_id"],
                    None,
                    row["time_ns"],
                    f"request {elapsed(row['asked'] - row['granted_ns'])} after the authentication",
                )
                for row in rows[:MAX_EVIDENCE]
            ),
            values={"lifetime_ms": lifetime, "mechanism": rows[0]["sasl_mechanism"]},
        )

    def effects(self, finding: Finding) -> Iterator[Effect]:
        who = {name: finding.subject[name] for name in ("client_id", "client_ip", "broker")}
        yield "unanswered-requests", {**who, "severity": "note"}
        yield "lost-records", who
        yield "cut-connections", {"broker": who["broker"]}
