"""Addresses at which clients do not find the broker they need: unreachable, a controller, or of another cluster."""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Iterator, Mapping, Set
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.between_brokers import is_broker
from kafkasniff.analysis.columns import (
    ORDER,
    broker_endpoint,
    column,
    encoded,
    endpoint_of,
    extracted,
    in_any,
    looked_up,
    matches,
    missing,
    only,
)
from kafkasniff.analysis.detectors.detector import Detector, Effect
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, PAIR, Tally, clients, in_all, pairs
from kafkasniff.analysis.detectors.wording import client, plural, some, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.questions.versions import is_controller, offered_in
from kafkasniff.engine.roles import Bodies
from kafkasniff.model import Endpoint
from kafkasniff.tables.rows.transport import TABLE
from kafkasniff.text.printable import printable, word
from kafkasniff.text.times import clock_time

MAX_BROKERS: Final = 1000
"""Maximum number of brokers of one answer that are examined."""
MAX_ADVERTISED: Final = 1 << 17
"""Maximum number of advertised brokers, counted per client."""
NAMING: Final = ("Metadata", "DescribeCluster")
"""APIs whose responses name brokers."""
QUORUM: Final = ("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot")
"""APIs whose responses name controllers; those of others name the leader beside an error (`node_endpoints`)."""
OPENING: Final = (
    *(*NAMING, "ApiVersions", "SaslHandshake", "SaslAuthenticate", "FindCoordinator"),
    *("InitProducerId", "GetTelemetrySubscriptions", "PushTelemetry"),
)
"""APIs that clients use before they know which brokers to contact, or at any broker."""
MANY_ASKS: Final = 5
"""A client that asks for the same topics this often in a row although it learns their leaders cannot reach them."""

_OF_QUORUM: Final = "raft-client-"
"""How the client ids begin with which nodes speak to the quorum's leader."""
_SAME_ADDRESS: Final = (("broker", pa.string()), ("node", pa.int64()), ("other", pa.int64()))
_LED: Final = r'"leader_id":[0-9]'
REGISTERING: Final = ("BrokerRegistration", "ControllerRegistration")
"""APIs whose requests name the addresses of their sender, for everybody."""
_BROKERS: Final = re.compile(r'"(?:brokers|node_endpoints|listeners)":(\[[^\]]*\])')
_NAMES_LEADERS: Final = r'"node_endpoints":\[\{'
_NOT_LEADER: Final = r'"error_code":6[,}]'
WRONG_BROKER: Final = "wrong-broker"
"""What `trouble` of a finding leads clients to a broker that they do not mean."""
SHOWN: Final = 3
"""Addresses that a title names."""
MISLED: Final = 3
"""So many refusals count: a broker that has just become leader may name itself and still refuse a request."""
_NEVER: Final[Mapping[str, str]] = {
    "refused": "refused",
    "unanswered": "unanswered",
    "silent": "accepted, but requests never answered",
}
BLOCKED: Final = 2
"""A single connect may be unanswered for other reasons."""
TRIES: Final = 5
"""A client that knows a wrong address from its settings alone tries it this often …"""
TRIES_NS: Final = 3_000_000_000
"""… and for this long. Programs ask at other addresses, too, whether something is there."""
_ANSWER_NS: Final = 1_000_000_000
"""After this time without an answer to a SYN it is sent again (RFC 6298)."""


class UnreachedThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `UnreachedListeners`."""

    attempts: Annotated[int, Meta(ge=1, description="Report from this many attempts, if all failed.")] = 1
    asks: Annotated[
        int, Meta(ge=1, description="Report clients that asked for metadata this often and sent nothing else.")
    ] = 3
    patience: Annotated[
        Duration,
        Meta(ge=0, description="Connections without any response count if the capture continues for this long."),
    ] = 3_000_000_000
    pace: Annotated[
        Duration, Meta(ge=1, description="Clients that ask again this soon on average want to reach the brokers.")
    ] = 3_000_000_000


class UnreachedListeners(Detector[UnreachedThresholds]):
    """Advertised listeners that a client or broker never reaches, and addresses that lead to another broker (an error).

    Either all its attempts to connect to an advertised IP address failed (captures only), or nothing there ever answers
    a request: an error. Or it repeatedly asks for metadata, sends nothing else, and reaches none of the advertised
    addresses: an error if these are loopback addresses and the client is elsewhere, otherwise a warning. For host
    names, whose addresses are unknown, it is a note unless the responses named leaders for its topics and it asked
    again at once, time after time. Connects that get no answer although open connections work are an error, too.

    An address that nobody advertises and that refuses or ignores all connects, at least 5 within 3 s and more, is a
    warning if brokers have its port or the capture has only Kafka, otherwise a note.

    Two brokers advertise the same address, or the broker that answers refuses requests and names its own address as
    that of the leader (KIP-951): an error.

    Caveats: a program that polls the metadata of a topic looks the same.
    """

    name: ClassVar[str] = "unreached-listeners"
    by_absence = True
    summary: ClassVar[str] = "Advertised listeners that clients never reach."
    parameters_type = UnreachedThresholds
    bodies: ClassVar[Bodies] = {
        **{("response", api): None for api in (*NAMING, *QUORUM)},
        **{("request", api): None for api in REGISTERING},
    }
    error_bodies = True

    _asks = Tally("asks", (*CLIENT, *BROKER), sums=("led",))
    _same = Tally("same", _SAME_ADDRESS)
    _misled = Tally("misled", (*CLIENT, *BROKER, ("node", pa.int64())))
    """Refusals for which the broker names its own address as that of the leader (KIP-951)."""
    _failed = Tally("failed", (*PAIR, ("opening", pa.string())))
    _blocked = Tally("blocked", PAIR)
    """Connects that were sent again. A single SYN may be all that was captured of a connection that works."""

    def reads(self) -> Mapping[str, TableReading]:
        ends = ("client_ip", "broker_ip", "broker_port")
        packets = ("opening", "syns", "client_data")
        own = ("api", *CLIENT_COLUMNS, "broker_ip", "broker_port", "request_body", "response_body")
        return {
            "exchanges": TableReading((*ORDER, *own)),
            "connections": TableReading(
                (
                    *ends,
                    "connection_id",
                    "time_ns",
                    "end_time_ns",
                    "broker_bytes",
                    "requests",
                    "responses",
                    "captured",
                    "verdict",
                )
            ),
            TABLE: TableReading(
                (*ends, "client_port", "connection_id", "time_ns", "end_time_ns", *packets), optional=True
            ),
        }

    def shapes(self) -> Mapping[str, Shape]:
        one: Any = (("count", pa.int64(), "sum"),)
        keys = (*CLIENT, ("host", pa.string()), ("port", pa.int32()))
        return {
            **self._asks.shapes(),
            **self._failed.shapes(),
            **self._blocked.shapes(),
            **self._same.shapes(),
            **self._misled.shapes(),
            "advertised": Shape(keys=keys, measures=one, weight="count", bound=MAX_ADVERTISED),
            "registered": Shape(keys=(("host", pa.string()), ("port", pa.int32()), ("controller", pa.bool_()))),
            "others": Shape(keys=CLIENT, measures=one, weight="count"),
            "whole": Shape(keys=(("one", pa.int8()),), measures=(("end_ns", pa.int64(), "max"),)),
            "reached": Shape(keys=PAIR, measures=(*one, ("until", pa.int64(), "max")), weight="count"),
            "foreign": Shape(keys=(("one", pa.int8()),), measures=one),
            "opened": Shape(keys=PAIR, measures=(*one, ("last", pa.int64(), "max")), weight="count"),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table in {"connections", TABLE}:
            self.parts["whole"].add({"one": [0], "end_ns": [pc.max(column(batch, "end_time_ns")).as_py()]})
        if table == "connections":
            foreign = pc.and_(in_any(batch, "verdict", ["not_kafka"]), pc.greater(column(batch, "broker_bytes"), 0))
            if count := pc.sum(foreign).as_py():
                self.parts["foreign"].add({"one": [0], "count": [count]})
            nothing = pc.and_(pc.greater(column(batch, "requests"), 0), pc.equal(column(batch, "responses"), 0))
            silent = only(batch, pc.and_(nothing, in_any(batch, "captured", ["both"])))
            opening = pa.array(["silent"] * silent.num_rows, pa.string())
            self._failed.add(self, silent, {**pairs(silent), "opening": opening})
            batch = only(batch, pc.and_(pc.greater(column(batch, "broker_bytes"), 0), pc.invert(nothing)))
            self.parts["reached"].add({**pairs(batch), "count": _ones(batch), "until": column(batch, "end_time_ns")})
        elif table == TABLE:
            opened = only(batch, in_any(batch, "opening", ["answered"]))
            self.parts["opened"].add({**pairs(opened), "count": _ones(opened), "last": column(opened, "time_ns")})
            batch = only(batch, in_any(batch, "opening", tuple(_NEVER)))
            # Data follows an answer, though only the client's packets may have been captured.
            sent = pc.fill_null(pc.greater(column(batch, "client_data"), 0), False)
            some = only(batch, sent)
            self.parts["reached"].add({**pairs(some), "count": _ones(some), "until": column(some, "end_time_ns")})
            batch = only(batch, pc.invert(sent))
            opening = column(batch, "opening")
            note = pc.binary_join_element_wise("connect from", endpoint_of(batch, "client"), opening, " ")
            self._failed.add(self, batch, {**pairs(batch), "opening": opening}, note)
            again = pc.and_(in_any(batch, "opening", ["unanswered"]), pc.greater(column(batch, "syns"), 1))
            batch = only(batch, again)
            self._blocked.add(self, batch, pairs(batch))
        else:
            self._exchanges(batch)

    def _exchanges(self, batch: pa.RecordBatch) -> None:
        other = only(batch, pc.invert(in_any(batch, "api", OPENING)))
        self.parts["others"].add({**clients(other), "count": _ones(other)})
        self._registered(only(batch, in_any(batch, "api", REGISTERING)))
        names_leaders = matches(batch, "response_body", _NAMES_LEADERS)
        self._advertised(only(batch, pc.or_(names_leaders, in_any(batch, "api", NAMING))))
        self._add_misled(only(batch, pc.and_(names_leaders, in_any(batch, "api", ("Produce", "Fetch")))))
        batch = only(batch, in_any(batch, "api", NAMING))
        led = matches(batch, "response_body", _LED).cast(pa.int64())
        self._asks.add(self, batch, clients(batch, broker=True), led=led)

    def _registered(self, batch: pa.RecordBatch) -> None:
        rows = zip(column(batch, "api").to_pylist(), column(batch, "request_body").to_pylist(), strict=True)
        for api, body in rows:
            for host, port, _ in _brokers(body or ""):
                self.parts["registered"].add({"host": [host], "port": [port], "controller": [api == REGISTERING[1]]})

    def _advertised(self, batch: pa.RecordBatch) -> None:
        batch = only(batch, pc.invert(missing(batch, "response_body")))
        rows = pa.table({**clients(batch), "body": encoded(batch, "response_body")})
        found: dict[str, list[Any]] = {name: [] for name in (*CLIENT_COLUMNS, "host", "port", "count")}
        # Many requests get the same response, so each text is read only once.
        read: dict[str, list[tuple[str, int, int | None]]] = {}
        shared: dict[str, list[tuple[str, int, int]]] = {}
        for row in rows.group_by([*CLIENT_COLUMNS, "body"]).aggregate([([], "count_all")]).to_pylist():
            brokers = read.get(row["body"])
            if brokers is None:
                brokers = read[row["body"]] = _brokers(row["body"])
                shared[row["body"]] = list(_shared(brokers))
            for host, port, _ in brokers:
                values = (row["client_id"], row["client_ip"], host, port, row["count_all"])
                for name, value in zip(found, values, strict=True):
                    found[name].append(value)
        self.parts["advertised"].add(found)
        self._add_shared(batch, {body: places for body, places in shared.items() if places})

    def _add_shared(self, batch: pa.RecordBatch, shared: Mapping[str, list[tuple[str, int, int]]]) -> None:
        bodies = column(batch, "response_body").to_pylist() if shared else []
        found = [(row, *place) for row, body in enumerate(bodies) for place in shared.get(body, ())]
        rows = batch.take(pa.array([row for row, *_ in found], pa.int64()))
        columns = zip(*(place for _, *place in found), strict=True) if found else ((), (), ())
        keys = {name: pa.array(list(values), kind) for (name, kind), values in zip(_SAME_ADDRESS, columns, strict=True)}
        self._same.add(self, rows, keys)

    def _add_misled(self, batch: pa.RecordBatch) -> None:
        batch = only(batch, pc.match_substring_regex(column(batch, "response_body"), _NOT_LEADER))
        texts, brokers = column(batch, "response_body").to_pylist(), broker_endpoint(batch).to_pylist()
        named = {text: {_endpoint(host, port): node for host, port, node in _brokers(text)} for text in {*texts}}
        nodes = pa.array([named[text].get(broker) for text, broker in zip(texts, brokers, strict=True)], pa.int64())
        known = pc.is_valid(nodes)
        batch = only(batch, known)
        self._misled.add(self, batch, {**clients(batch, broker=True), "node": nodes.filter(known)})

    def findings(self) -> list[Finding]:
        advertised: dict[tuple[str | None, str | None], list[tuple[str, int]]] = {}
        for row in self.parts["advertised"].table().to_pylist():
            advertised.setdefault((row["client_id"], row["client_ip"]), []).append((row["host"], row["port"]))
        pairs = {(row["client_ip"], row["broker"]): row for row in self.parts["reached"].table().to_pylist()}
        reached = set(pairs)
        failed = list(self._failures(advertised, reached))
        # What cannot be reached explains why these clients do nothing else.
        known = {(finding.subject["client_ip"], finding.subject["broker"]) for finding in failed}
        stuck = {
            who: brokers
            for who, brokers in advertised.items()
            if not any((who[1], _endpoint(*broker)) in known for broker in brokers)
        }
        named = {_endpoint(*broker) for brokers in advertised.values() for broker in brokers}
        shared = list(self._same_address())
        twice = {finding.subject["broker"] for finding in shared}
        return [
            *shared,
            *self._wrong_broker(twice),
            *failed,
            *self._unanswered(pairs),
            *self._stuck(stuck, reached),
            *self._nowhere(named, {broker for _, broker in reached}),
        ]

    def _nowhere(self, named: set[str], accepting: set[str]) -> Iterator[Finding]:
        """Addresses that clients have from their settings alone, and at which nothing ever listens."""
        accepting |= set(self.parts["opened"].table().column("broker").to_pylist())
        named |= {_endpoint(row["host"], row["port"]) for row in self.parts["registered"].table().to_pylist()}
        ports = {_port(broker) for broker in accepting | named}
        for row, evidence in self._failed.rows(self):
            broker, opening = row["broker"], row["opening"]
            if opening == "silent" or broker in named or broker in accepting or not ports:
                continue
            if row["count"] < TRIES or row["first"] is None or row["last"] - row["first"] < TRIES_NS:
                continue
            # With two addresses for one name, clients try the other one next.
            other = any(_other_family(broker, one) for one in accepting)
            kafka = _port(broker) in ports or not self.parts["foreign"].table().num_rows
            yield self.finding(
                "warning" if kafka and not other else "note",
                f"{plural(row['count'], 'connect')} from {word(row['client_ip'])} to {broker} {_NEVER[opening]}; "
                "none succeeded, and no broker advertises this address",
                meaning=(
                    "Nothing accepted a connection at this address in the whole capture. A client has it from its "
                    "settings: the host or port is wrong, or the broker did not run. A broker may have it from the "
                    "listener that another one advertises to brokers alone (inter.broker.listener.name)."
                ),
                advice=(
                    f"Compare the client's bootstrap.servers with the addresses of the brokers "
                    f"({some(sorted(named or accepting))}), or the brokers' advertised.listeners."
                ),
                subject={"client_id": None, "client_ip": row["client_ip"], "broker": broker},
                count=row["count"],
                first=row["first"],
                last=row["last"],
                evidence=evidence,
                values={"attempts": row["count"], "opening": opening},
            )

    def _unanswered(self, pairs: Mapping[tuple[str | None, str], dict[str, Any]]) -> Iterator[Finding]:
        """New connections that get no answer, while the client has an open one."""
        failed = self._failed.rows(self)
        silent = {(row["client_ip"], row["broker"]) for row, _ in failed if row["opening"] == "silent"}
        opened = {(row["client_ip"], row["broker"]): row["last"] for row in self.parts["opened"].table().to_pylist()}
        for row, evidence in self._blocked.rows(self):
            pair = row["client_ip"], row["broker"]
            known = pairs.get(pair)
            if row["count"] < BLOCKED or row["first"] is None:
                continue
            if known is None and pair not in silent:
                continue
            if known is not None and (known["until"] or 0) < (row["first"] + row["last"]) // 2:
                continue
            later = (opened.get(pair) or 0) > row["last"]
            works = "and so are requests on an open one" if known is None else "although an open connection works"
            yield self.finding(
                "warning" if later else "error",
                f"{plural(row['count'], 'connect')} from {word(row['client_ip'])} to {row['broker']} unanswered, "
                f"{works}" + ("; later connects were answered" if later else ""),
                meaning=(
                    "Nothing answers the first packet (SYN) of new connections. Clients whose open connection works "
                    "continue; those that start, or reconnect, cannot."
                ),
                advice=(
                    "Check firewalls, load balancers and their limits (rate of new connections, full tables of "
                    "connection tracking) between the two, and on the broker's machine whether the queue of its "
                    "listening socket overflows (`ss -lnt`, `nstat -az TcpExtListenOverflows`): then its acceptor does "
                    "not keep up, or stands still."
                ),
                subject={"client_id": None, "client_ip": row["client_ip"], "broker": row["broker"]},
                count=row["count"],
                first=row["first"],
                last=row["last"],
                evidence=evidence,
                values={"attempts": row["count"], "opening": "unanswered"},
            )

    def _same_address(self) -> Iterator[Finding]:
        for row, evidence in self._same.rows(self):
            broker = row["broker"]
            yield self.finding(
                "error",
                f"brokers {row['node']} and {row['other']} advertise the same address, {broker}",
                meaning=(
                    "Clients that mean one of them reach the other, which refuses their requests "
                    "(NOT_LEADER_OR_FOLLOWER, REBOOTSTRAP_REQUIRED). They ask for metadata, get the same address, and "
                    "try again."
                ),
                advice=(
                    "Give each broker its own host or port in advertised.listeners: a setting that was copied from one "
                    "broker to another is the usual reason."
                ),
                subject={"client_id": None, "client_ip": None, "broker": broker, "trouble": WRONG_BROKER},
                count=row["count"],
                first=row["first"],
                last=row["last"],
                evidence=evidence,
                values={"brokers": [row["node"], row["other"]]},
            )

    def _wrong_broker(self, twice: Set[str]) -> Iterator[Finding]:
        """Addresses at which another broker answers; `twice`: those that two brokers advertise."""
        rows = [
            one
            for one in self._misled.rows(self)
            if one[0]["count"] >= MISLED and one[0]["broker"] not in twice and not _is_node(one[0]["client_id"])
        ]
        places = sorted({(row["broker"], row["node"]) for row, _ in rows})
        if rows:
            names = sorted({row["client_id"] or row["client_ip"] or "?" for row, _ in rows})
            whole = in_all(rows)
            leads = "leads to another broker" if len(places) == 1 else "lead to other brokers"
            yield self.finding(
                "error",
                f"{' and '.join(f'{place}, which broker {node} advertises,' for place, node in places[:SHOWN])} "
                f"{leads}: {plural(whole['count'], 'request')} of {some(names)} refused",
                meaning=(
                    "The broker that answers there does not lead the partitions (NOT_LEADER_OR_FOLLOWER), and names "
                    "this very address as that of the leader. Clients ask for metadata, get the same address, and try "
                    "again."
                ),
                advice=(
                    "Compare what answers at this address with advertised.listeners of the broker: a load balancer "
                    "with several targets, swapped port forwardings (NAT, containers), or a name that resolves to the "
                    "addresses of several brokers are the usual reasons. Each broker needs an address of its own."
                ),
                subject={
                    **dict.fromkeys(CLIENT_COLUMNS),
                    "broker": places[0][0] if len(places) == 1 else None,
                    "trouble": WRONG_BROKER,
                },
                **whole,
                values={"brokers": [node for _, node in places], "addresses": [place for place, _ in places]},
            )

    def effects(self, finding: Finding) -> Iterator[Effect]:
        if finding.values.get("opening") == "silent":
            yield "late-answers", {"broker": finding.subject["broker"], "trouble": "silent"}

    def _failures(
        self, advertised: dict[Any, list[tuple[str, int]]], reached: set[tuple[str | None, str]]
    ) -> Iterator[Finding]:
        end = pc.max(self.parts["whole"].table().column("end_ns")).as_py() or 0
        answering = {broker for _, broker in reached}
        endpoints: dict[tuple[str | None, str], list[str | None]] = {}
        for (name, ip), brokers in advertised.items():
            for broker in brokers:
                endpoints.setdefault((ip, _endpoint(*broker)), []).append(name)
        registered = {
            _endpoint(row["host"], row["port"]): row["controller"]
            for row in self.parts["registered"].table().sort_by("controller").to_pylist()
        }
        for row, evidence in self._failed.rows(self):
            pair = (row["client_ip"], row["broker"])
            if (
                (pair not in endpoints and row["broker"] not in registered)
                or pair in reached
                or row["count"] < self.thresholds.attempts
            ):
                continue
            if row["opening"] == "silent" and row["broker"] in answering:
                continue
            # An answer may follow the end of the capture.
            patience = {"silent": self.thresholds.patience, "unanswered": _ANSWER_NS}.get(row["opening"], 0)
            if patience and (row["first"] is None or end - row["first"] < patience):
                continue
            names = endpoints.get(pair, ())
            quorum = registered.get(row["broker"], bool(names)) and all(
                name is not None and name.startswith(_OF_QUORUM) for name in names
            )
            yield self._finding(
                "error",
                f"{plural(row['count'], 'connection')} from {word(row['client_ip'])} to {row['broker']}, as advertised "
                f"by {'controllers' if quorum else 'brokers'}, {_NEVER[row['opening']]}; none succeeded",
                {"client_id": None, "client_ip": row["client_ip"], "broker": row["broker"]},
                row,
                evidence,
                {"attempts": row["count"], "opening": row["opening"]},
                quorum=quorum,
            )

    def _stuck(
        self, advertised: dict[Any, list[tuple[str, int]]], reached: set[tuple[str | None, str]]
    ) -> Iterator[Finding]:
        others = {(row["client_id"], row["client_ip"]) for row in self.parts["others"].table().to_pylist()}
        for row, evidence in self._asks.rows(self):
            key = (row["client_id"], row["client_ip"])
            brokers = sorted(advertised.get(key, ()))
            if key in others or row["count"] < self.thresholds.asks or not brokers:
                continue
            endpoints = [_endpoint(host, port) for host, port in brokers]
            if any((row["client_ip"], endpoint) in reached for endpoint in endpoints):
                continue
            local = [endpoint for endpoint, (host, _) in zip(endpoints, brokers, strict=True) if _is_loopback(host)]
            away = bool(local) and not _is_loopback(row["client_ip"] or "")
            addresses = all(_address(host) is not None for host, _ in brokers)
            in_vain = addresses or self._is_urgent(row)
            severity: Severity = "error" if away else "warning" if in_vain else "note"
            names = some(endpoints)
            what = "its own machine: " if away else ""
            yield self._finding(
                severity,
                f"{client(row)} asked {row['broker']} {plural(row['count'], 'time')} for metadata and nothing else; "
                f"brokers send it to {what}{names}",
                subject(row, "client_id", "client_ip", "broker"),
                row,
                evidence,
                {"asks": row["count"], "advertised": endpoints},
            )

    def _is_urgent(self, row: dict[str, Any]) -> bool:
        """Whether a client got what it needs to contact the brokers, and asks again and again."""
        if row["led"] < MANY_ASKS or row["first"] is None or row["last"] is None:
            return False
        return bool(row["last"] - row["first"] <= (row["count"] - 1) * self.thresholds.pace)

    def _finding(  # noqa: PLR0917 - what both kinds have in common
        self,
        severity: Severity,
        title: str,
        about: dict[str, Any],
        row: dict[str, Any],
        evidence: tuple[Evidence, ...],
        values: dict[str, Any],
        *,
        quorum: bool = False,
    ) -> Finding:
        refused = values.get("opening") == "refused"
        return self.finding(
            severity,
            title,
            meaning=(
                "Brokers and controllers find the quorum at its bootstrap addresses, and then use the address that the "
                "leader advertises. If that cannot be reached, brokers never register, and elections, new topics and "
                "new leaders fail."
                if quorum
                else "The first response of a cluster names the addresses of its brokers (advertised.listeners), and "
                "clients use only these from then on. If an address cannot be resolved or reached from where the "
                "client is, the client keeps asking forever."
            ),
            # A machine refuses connects if nothing listens: the node may just have stopped before the capture.
            advice=(f"Check first that the {'controller' if quorum else 'broker'} runs. " if refused else "")
            + (
                "Set the CONTROLLER address in advertised.listeners of the controllers to one that all nodes can "
                "reach, or open the port in the firewall between them."
                if quorum
                else "Set advertised.listeners to names and ports that clients can reach from where they are: with "
                "containers, NAT or clouds, one listener for each network. Try the name and the port from the client."
            ),
            subject=about,
            count=row["count"],
            first=row["first"],
            last=row["last"],
            evidence=evidence,
            values=values,
        )


def _port(endpoint: str) -> str:
    return endpoint.rpartition(":")[2]


def _other_family(endpoint: str, other: str) -> bool:
    """Whether they have the same port, and one is of IPv6 while the other is of IPv4."""
    return _port(endpoint) == _port(other) and endpoint.startswith("[") != other.startswith("[")


def _brokers(body: str) -> list[tuple[str, int, int | None]]:
    """Hosts, ports and node ids that a response names; none if it is not valid."""
    # The body of a large cluster is long; the brokers precede the topics.
    match = _BROKERS.search(body)
    try:
        found = msgspec.json.decode(match.group(1)) if match is not None else []
    except msgspec.DecodeError:
        return []
    brokers = []
    for one in found[:MAX_BROKERS]:
        host, port = (one.get("host"), one.get("port")) if isinstance(one, dict) else (None, None)
        if isinstance(host, str) and isinstance(port, int) and host:
            node = one.get("node_id", one.get("broker_id"))
            brokers.append((host, port, node if isinstance(node, int) else None))
    return brokers


def _shared(brokers: list[tuple[str, int, int | None]]) -> Iterator[tuple[str, int, int]]:
    """Addresses that two brokers have, with the ids of both."""
    known: dict[str, int] = {}
    for host, port, node in brokers:
        if node is not None:
            other = known.setdefault(_endpoint(host, port), node)
            if other != node:
                yield _endpoint(host, port), min(other, node), max(other, node)


def _endpoint(host: str, port: int) -> str:
    """The form of `broker_endpoint`, if the host is an address; `localhost` is one."""
    return str(Endpoint(str(_address(host) or printable(host)), port))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return address is not None and address.is_loopback


def _ones(batch: pa.RecordBatch) -> Any:
    return np.ones(batch.num_rows, np.int64)


_ASKING: Final = ("ApiVersions", "SaslHandshake", "SaslAuthenticate")
"""APIs that clients use before they know what a listener offers."""
MAX_PAIRS: Final = 1 << 17
"""Maximum number of pairs of client and listener, the busiest."""


class ClientsAtControllersThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `ClientsAtControllers`."""

    attempts: Annotated[int, Meta(ge=1, description="Report a client that asked a controller this often …")] = 3
    patience: Annotated[
        Duration, Meta(ge=0, description="… or once, if the capture continues for this long after that.")
    ] = 3_000_000_000


class ClientsAtControllers(Detector[ClientsAtControllersThresholds]):
    """Clients that reach a controller's listener: it offers neither Produce nor Metadata.

    Such a client asks for versions (ApiVersions), learns that the listener is of no use, and waits or asks again. Nodes
    of the cluster and tools for controllers (`bootstrap.controllers`) send other requests.

    Caveats: a health check that only asks for versions looks the same.
    """

    name: ClassVar[str] = "clients-at-controllers"
    summary: ClassVar[str] = "Clients that connect to a controller instead of a broker."
    parameters_type = ClientsAtControllersThresholds
    bodies: ClassVar[Bodies] = {("response", "ApiVersions"): None}

    _asked = Tally("asked", (*CLIENT, *BROKER), bound=MAX_PAIRS)

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *CLIENT_COLUMNS, "broker_ip", "broker_port", "response_body")
        return {
            "exchanges": TableReading((*ORDER, *own)),
            "connections": TableReading(("end_time_ns",), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        count: Any = (("count", pa.int64(), "sum"),)
        return {
            **super().shapes(),
            "served": Shape(keys=(*CLIENT, *BROKER), measures=count, weight="count", bound=MAX_PAIRS),
            "whole": Shape(keys=(("one", pa.int8()),), measures=(("end_ns", pa.int64(), "max"),)),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "connections":
            self.parts["whole"].add({"one": [0], "end_ns": [pc.max(column(batch, "end_time_ns")).as_py()]})
            return
        asking = in_any(batch, "api", _ASKING)
        other = only(batch, pc.invert(asking))
        self.parts["served"].add({**clients(other, broker=True), "count": np.ones(other.num_rows, np.int64)})
        batch = only(batch, pc.and_(asking, pc.is_valid(column(batch, "response_body"))))
        found = looked_up(batch, "response_body", lambda text: is_controller(offered_in(text)), pa.bool_())
        batch = only(batch, found)
        self._asked.add(self, batch, clients(batch, broker=True))

    def findings(self) -> Iterator[Finding]:
        end = pc.max(self.parts["whole"].table().column("end_ns")).as_py()
        pair = (*CLIENT_COLUMNS, "broker")
        served = {tuple(row[name] for name in pair) for row in self.parts["served"].table().to_pylist()}
        for row, evidence in self._asked.rows(self):
            if tuple(row[name] for name in pair) in served or _is_node(row["client_id"]):
                continue
            waited = end is not None and row["first"] is not None and end - row["first"] >= self.thresholds.patience
            if row["count"] < self.thresholds.attempts and not waited:
                continue
            yield self.row_finding(
                row,
                evidence,
                "error",
                f"{client(row)} connects to {row['broker']}, which is a controller and serves no clients",
                meaning=(
                    "The listener belongs to a controller of the quorum. It serves brokers and administrative tools; "
                    "it names no brokers and takes no records. The client can do nothing there."
                ),
                advice=(
                    "Set the client's bootstrap.servers to the listeners of brokers, not to the port of "
                    "controller.listener.names. If brokers sent it there, correct their advertised.listeners; if a "
                    "load balancer or a Kubernetes service did, correct its targets. Administrative tools take "
                    "controllers with --bootstrap-controller."
                ),
                subject=pair,
                values={"attempts": row["count"]},
            )


def _is_node(client_id: str | None) -> bool:
    """Whether a node of the cluster has this name, which may only have asked for versions so far."""
    return client_id is not None and (client_id.isdecimal() or is_broker(client_id, ()))


_ID: Final = r'"cluster_id":"(?P<id>[^"\\]{1,256})"'


class OtherClusterThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `OtherClusters`."""

    clusters: Annotated[
        int, Meta(ge=2, description="Report an address at which a client meets this many clusters.")
    ] = 2


class OtherClusters(Detector[OtherClusterThresholds]):
    """Addresses at which the same client meets different clusters: cluster ids differ between its connections.

    Caveats: two programs with one client id at one address count as one client. A cluster that was deleted and made
    again at the same address has another id, too.
    """

    name: ClassVar[str] = "other-clusters"
    summary: ClassVar[str] = "Addresses that lead clients to different clusters."
    parameters_type = OtherClusterThresholds
    bodies: ClassVar[Bodies] = {("response", api): None for api in NAMING}

    _met = Tally("met", (*CLIENT, *BROKER, ("cluster_id", pa.string())))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *CLIENT_COLUMNS, "broker_ip", "broker_port", "response_body")
        return {"exchanges": TableReading((*ORDER, *own), NAMING)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        found = extracted(batch, "response_body", _ID)
        known = pc.is_valid(found)
        batch, found = only(batch, known), found.filter(known)
        notes = pc.binary_join_element_wise("cluster ", found, "")
        self._met.add(self, batch, {**clients(batch, broker=True), "cluster_id": found}, notes)

    def findings(self) -> Iterator[Finding]:
        met: dict[tuple[Any, ...], list[tuple[dict[str, Any], tuple[Evidence, ...]]]] = {}
        for row, evidence in self._met.rows(self):
            met.setdefault(tuple(row[name] for name in (*CLIENT_COLUMNS, "broker")), []).append((row, evidence))
        for some_clusters in met.values():
            if len(some_clusters) >= self.thresholds.clusters:
                yield self._finding(sorted(some_clusters, key=lambda one: (one[0]["first"] or 0, one[0]["cluster_id"])))

    def _finding(self, met: list[tuple[dict[str, Any], tuple[Evidence, ...]]]) -> Finding:
        rows = [row for row, _ in met]
        row, ids = rows[0], [row["cluster_id"] for row in rows]
        times = [row[name] for row in rows for name in ("first", "last") if row[name] is not None]
        first, last = min(times, default=None), max(times, default=None)
        changes = [row["first"] for row in rows[1:] if row["first"] is not None]
        since = f", the second since {clock_time(changes[0])[:-3]}" if changes else ""
        mixed = any(
            one["last"] is not None and other["first"] is not None and one["last"] > other["first"]
            for one, other in itertools.pairwise(rows)
        )
        # The first exchanges of each cluster show it.
        each = max(MAX_EVIDENCE // len(met), 1)
        evidence = sorted((evidence for _, some in met for evidence in some[:each]), key=lambda one: one.time_ns or 0)
        return self.finding(
            "error",
            f"{client(row)} meets {len(rows):,} clusters at {row['broker']}: {some(ids)}{since}",
            meaning=(
                "The address leads to brokers of different clusters"
                + (", in turns" if mixed else "")
                + ": a name that resolves to other machines, a load balancer or a port forwarding that was changed, or "
                "a cluster that was made again. Clients find other topics, offsets and groups there, and write records "
                "where nobody reads them."
            ),
            advice=(
                "Compare what the bootstrap name resolves to with the brokers of the cluster, and the targets of load "
                "balancers. Restart clients that still use the wrong cluster, and look for records and offsets that "
                "they have written there."
            ),
            subject={name: row[name] for name in (*CLIENT_COLUMNS, "broker")},
            count=sum(row["count"] for row in rows),
            first=first,
            last=last,
            evidence=tuple(evidence[:MAX_EVIDENCE]),
            values={"clusters": ids, "mixed": mixed},
        )
