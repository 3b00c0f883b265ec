"""Compare what a client program reports about itself with what kafkasniff decoded, in both directions.

Each function yields a sentence per difference: something that the client reported and kafkasniff did not decode, or
vice versa. `differences` combines them. The programs report everything they do, so nothing may be missing on either
side. The few exceptions (a retried record, a late response) are documented at the function that makes them.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from tests.evidence.compare import Line
from tests.evidence.decoded import Decoded, Entry, Record, objects
from tests.evidence.reports import CHECKS
from tests.integration.run import Account

HEADER = ("api_key", "api_version", "correlation_id", "client_id", "client_port", "size")
"""Names that a client's log may give for a message; each client logs some of them."""

RETRIED = {
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "MEMBER_ID_REQUIRED",
    "REBALANCE_IN_PROGRESS",
    "ILLEGAL_GENERATION",
    "CONCURRENT_TRANSACTIONS",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER",
}
"""Errors that clients recover from by themselves; librdkafka's log does not say which of them it met."""

_ERROR_CODE = re.compile(r"error_?code=(-?\d+)", re.IGNORECASE)
_PRODUCER_ID = re.compile(r"PID\{Id:(\d+),Epoch:(\d+)\}")


def differences(account: Account, seen: Decoded | None = None) -> Iterator[str]:
    """All differences; empty if the client's account and the decoded lines agree.

    `seen`: the account's lines, for callers that compare them with several accounts.
    """
    seen = seen or Decoded(account.lines, ())
    return (f"{account.name}: {one}" for compare in COMPARISONS for one in compare(account, seen))


def _both(ours: Iterable[Hashable], theirs: Iterable[Hashable], what: str) -> Iterator[str]:
    """Items that only one side has, repeated as often as that side has more of them."""
    mine, reported = Counter(ours), Counter(theirs)
    for one in (mine - reported).elements():
        yield f"{what}: decoded, but not reported: {one}"
    for one in (reported - mine).elements():
        yield f"{what}: reported, but not decoded: {one}"


def _reports(account: Account, *kinds: str) -> list[Entry]:
    return [entry for entry in account.reports if entry["kind"] in kinds]


def each_report(account: Account, seen: Decoded) -> Iterator[str]:
    """The checks of the shipped captures' sidecars, on every report of this run."""
    for entry in account.reports:
        if entry["kind"] in CHECKS and not CHECKS[entry["kind"]](seen, entry):
            yield f"reported, but not decoded: {entry}"


def messages(account: Account, seen: Decoded) -> Iterator[str]:
    """The requests and responses are exactly those in the client's log.

    Except that a client that is about to close a connection may not log the last responses.
    """
    for kind in ("request", "response"):
        logged = [entry for entry in account.logged if entry["kind"] == kind]
        if not logged:
            yield f"{kind}: the client's log names none"
            return
        names = [name for name in HEADER if all(name in entry for entry in logged)]
        theirs = Counter(tuple(entry[name] for name in names) for entry in logged)
        streams: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for line in seen.lines:
            if line["type"] == kind:
                port = {"client_port": int(line["client"].rpartition(":")[2])}
                streams[line["connection"]].append(tuple({**line, **port}[name] for name in names))
        ours = Counter(header for stream in streams.values() for header in stream)
        unlogged = ours - theirs
        if kind == "response":
            for stream in streams.values():
                while stream and unlogged[stream[-1]] > 0:
                    unlogged[stream.pop()] -= 1
        for header in unlogged.elements():
            yield f"{kind}: decoded, but not logged: {dict(zip(names, header, strict=True))}"
        for header in (theirs - ours).elements():
            yield f"{kind}: logged, but not decoded: {dict(zip(names, header, strict=True))}"


def pairs(account: Account, seen: Decoded) -> Iterator[str]:
    """An exchange is one request and at most one response, which is later and has the same header values."""
    exchanges: dict[int, list[Line]] = defaultdict(list)
    for line in seen.lines:
        exchanges[line["exchange"]].append(line)
    same = ("connection", "client", "api_key", "api_version", "correlation_id", "client_id")
    for number, both in exchanges.items():
        if [line["type"] for line in both] not in (["request"], ["request", "response"]):
            yield f"exchange {number}: {[line['type'] for line in both]}"
        for name in same:
            if len({line[name] for line in both}) > 1:
                yield f"exchange {number}: its messages differ in {name}"


def topics(account: Account, seen: Decoded) -> Iterator[str]:
    asked = {
        (line["exchange"], topic["name"]): topic["num_partitions"]
        for line in seen.messages("CreateTopics", "request")
        for topic in line["body"]["topics"]
    }
    created = [
        (topic["name"], asked.get((line["exchange"], topic["name"])))
        for line in seen.messages("CreateTopics", "response")
        for topic in line["body"]["topics"]
        if topic["error_code"] == 0
    ]
    yield from _both(
        created, [(entry["topic"], entry["partitions"]) for entry in _reports(account, "created")], "topic"
    )


def _record(topic: str | None, partition: int, offset: int | None, record: Entry, headers: Any) -> str:
    """A record with its content and place, in a form that both sides share."""
    content = [topic, partition, offset, record["timestamp"], record["key"], record["value"], headers]
    return json.dumps(content, ensure_ascii=False, sort_keys=True)


def _decoded_record(one: Record) -> str:
    headers = [[header["key"], header["value"]] for header in one.record["headers"]]
    return _record(one.topic, one.partition, one.offset, one.record, headers)


def _reported_records(account: Account, kind: str, client_id: str | None = None) -> list[str]:
    return [
        _record(entry["topic"], entry["partition"], entry["offset"], entry, entry["headers"])
        for entry in _reports(account, kind)
        if client_id in {None, entry.get("client_id")}
    ]


def produced(account: Account, seen: Decoded) -> Iterator[str]:
    """Every record that was produced, once. A record that the broker refused is reported as a failure, or retried."""
    taken: list[Record] = []
    refused: list[Record] = []
    for one in seen.produced:
        # A refused batch has the base offset -1 in its response, and clients number its records from 0.
        base = None if one.offset is None else one.offset - one.record["offset"]
        (refused if base == -1 else taken).append(one)
    ours = [_decoded_record(one) for one in taken]
    yield from _both(ours, _reported_records(account, "produced"), "produced record")
    contents = {_content(one) for one in taken}
    lost = [one for one in refused if _content(one) not in contents]
    failed = [entry for entry in _reports(account, "failed") if entry["operation"].startswith("produce")]
    reported = sum(entry["error_code"] is not None for entry in failed)
    if len(lost) != reported:
        yield f"{len(lost)} records were refused, the client reports {reported}: {lost}"


def _content(one: Record) -> str:
    return _decoded_record(one._replace(offset=None))


def consumed(account: Account, seen: Decoded) -> Iterator[str]:
    """Every record that a broker sent, for each client, once.

    There are two exceptions: a reader of committed records skips those of aborted transactions, and a fetch that was in
    flight during a rebalance may return a record that by then belongs to another member.
    """
    groups = {entry["client_id"]: entry["group"] for entry in _reports(account, "assigned")}
    clients = {line["client_id"] for line in seen.messages("Fetch", "request")}
    for client in sorted(clients | {entry["client_id"] for entry in _reports(account, "consumed")}):
        lines = tuple(line for line in seen.lines if line["api"] != "Fetch" or line["client_id"] == client)
        fetched = Decoded(lines, ())
        committed_only = any(line["body"]["isolation_level"] for line in fetched.messages("Fetch", "request"))
        aborted = set(_aborted(fetched)) if committed_only else set()
        ours = Counter(
            _decoded_record(one)
            for one in fetched.consumed
            if not one.batch["control"]
            and (one.topic, one.partition, one.batch["producer_id"], one.offset) not in aborted
        )
        reported = Counter(_reported_records(account, "consumed", client))
        of_others: set[str] = set()
        if client in groups:
            others = [other for other, group in groups.items() if group == groups[client]]
            of_others = {one for other in others for one in _reported_records(account, "consumed", other)}
        extra = {one: number for one, number in (ours - reported).items() if one in of_others}
        yield from _both((ours - Counter(extra)).elements(), reported.elements(), f"record consumed by {client}")


def _aborted(fetched: Decoded) -> Iterator[tuple[str | None, int, int, int]]:
    """Records of aborted transactions: those of a producer from the first offset of a transaction to its marker."""
    for line in fetched.messages("Fetch", "response"):
        for topic in line["body"]["responses"]:
            for part in topic["partitions"]:
                first = {one["producer_id"]: one["first_offset"] for one in part["aborted_transactions"] or ()}
                ended: set[int] = set()
                name = topic.get("topic") or fetched.topics.get(topic.get("topic_id", ""))
                for batch in (part["records"] or {"batches": ()})["batches"]:
                    producer = batch["producer_id"]
                    if not batch["transactional"] or producer not in first or producer in ended:
                        continue
                    if batch["base_offset"] < first[producer]:
                        continue
                    if batch["control"]:
                        ended.add(producer)
                        continue
                    for record in batch["records"]:
                        yield name, part["partition_index"], producer, record["offset"]


def members(account: Account, seen: Decoded) -> Iterator[str]:
    """The members of each group: those that coordinators answered, and those that the client reports."""
    ours = set()
    for line in seen.messages("JoinGroup SyncGroup Heartbeat ConsumerGroupHeartbeat", "request"):
        body = line["body"]
        epoch = body.get("generation_id", body.get("member_epoch", -1))
        # The first request of a classic member has no id, that of a new member no epoch.
        if body["member_id"] and epoch > 0:
            ours.add((line["client_id"], body["group_id"], body["member_id"]))
    assigned = _reports(account, "assigned")
    yield from _both(ours, {(one["client_id"], one["group"], one["member_id"]) for one in assigned}, "member")
    left = [
        (line["client_id"], line["body"]["group_id"])
        for line in seen.messages("LeaveGroup ConsumerGroupHeartbeat", "request")
        if line["api"] == "LeaveGroup" or line["body"]["member_epoch"] == -1
    ]
    yield from _both(left, [(one["client_id"], one["group"]) for one in _reports(account, "left")], "leave")


def generations(account: Account, seen: Decoded) -> Iterator[str]:
    """The generations (classic) and epochs (KIP-848) of group members, if the client reports them."""
    reported: dict[str, set[int]] = defaultdict(set)
    for entry in _reports(account, "assigned"):
        if "generation" in entry:
            reported[entry["member_id"]].add(entry["generation"])
    for member, generations_reported in reported.items():
        found = {
            one["generation_id" if "generation_id" in one else "member_epoch"]
            for line in seen.messages("JoinGroup Heartbeat SyncGroup ConsumerGroupHeartbeat", "request")
            for one in [line["body"]]
            if one["member_id"] == member and ("generation_id" in one or "member_epoch" in one)
        }
        for generation in sorted(generations_reported - found):
            yield f"generation of {member}: reported, but not decoded: {generation}"
        # Between two assignments, a KIP-848 member may pass through epochs that are not reported.
        newest = max(generations_reported)
        for generation in sorted(one for one in found if one > newest):
            yield f"generation of {member}: decoded, but not reported: {generation}"


def assignments(account: Account, seen: Decoded) -> Iterator[str]:
    """Every assignment by a coordinator is one that the member then had, and vice versa."""
    reported: dict[str, set[frozenset[str]]] = defaultdict(set)
    for entry in _reports(account, "assigned", "revoked"):
        reported[entry["client_id"]].add(frozenset(entry["owned"]))
    for client, owned in reported.items():
        found = {frozenset(one) for one in seen.assignments(client)}
        nothing = {frozenset[str]()}
        yield from _both(found - nothing, owned - nothing, f"assignment of {client}")


def commits(account: Account, seen: Decoded) -> Iterator[str]:
    """Committed offsets, each once, including those in transactions."""
    refused = {line["exchange"] for line in seen.lines if line["type"] == "response" and line["errors"]}
    ours = []
    for line in seen.messages("OffsetCommit TxnOffsetCommit", "request"):
        if line["exchange"] in refused:
            continue
        body = line["body"]
        for topic in body["topics"]:
            name = topic.get("name") or seen.topics.get(topic.get("topic_id", ""))
            for one in topic["partitions"]:
                place = f"{name}-{one['partition_index']}"
                ours.append((line["client_id"], body["group_id"], place, one["committed_offset"]))
    reported = [
        (entry["client_id"], entry["group"], partition, offset)
        for entry in _reports(account, "committed")
        for partition, offset in entry["offsets"].items()
    ]
    # The producer sends the transaction's offsets, whatever the consumer's name is.
    senders = {line["body"]["transactional_id"]: line["client_id"] for line in seen.messages("EndTxn", "request")}
    reported += [
        (
            senders.get(entry["transactional_id"]),
            entry["group"],
            f"{entry['topic']}-{entry['partition']}",
            entry["committed_offset"],
        )
        for entry in _reports(account, "transaction")
        if "committed_offset" in entry
    ]
    yield from _both(ours, reported, "committed offset")


def transactions(account: Account, seen: Decoded) -> Iterator[str]:
    """Transactions in order, with their ends and their producers."""
    refused = {line["exchange"] for line in seen.lines if line["type"] == "response" and line["errors"]}
    ends = [line for line in seen.messages("EndTxn", "request") if line["exchange"] not in refused]
    ours = [(line["body"]["transactional_id"], bool(line["body"]["committed"])) for line in ends]
    reported = [(entry["transactional_id"], entry["result"] == "commit") for entry in _reports(account, "transaction")]
    if ours != reported:
        yield f"transactions: decoded {ours}, reported {reported}"
    # Every transaction that wrote has a marker in its partition, which readers received.
    markers = {
        (one.topic, one.partition, one.offset): one.record["_control"]["name"]
        for one in seen.consumed
        if one.batch["control"]
    }
    kinds = [name.lower() for name in markers.values()]
    yield from _both(kinds, [entry["result"] for entry in _reports(account, "transaction")], "marker")
    # If the client reports its producer id (librdkafka's log, Java's administrator), requests must have the same.
    owners = {(int(one), int(epoch)) for one, epoch in _PRODUCER_ID.findall(account.stderr)}
    owners |= {(one["producer_id"], one["producer_epoch"]) for one in _reports(account, "described_transaction")}
    if not owners:
        return
    for line in ends:
        owner = (line["body"]["producer_id"], line["body"]["producer_epoch"])
        # The epoch rises with every transaction (KIP-890); the first epoch is always reported.
        if owner[0] not in {one for one, _ in owners}:
            yield f"transactions: decoded producer {owner}, reported {sorted(owners)}"
    if ends and (ends[0]["body"]["producer_id"], ends[0]["body"]["producer_epoch"]) not in owners:
        yield f"transactions: the first does not belong to {sorted(owners)}"


def errors(account: Account, seen: Decoded) -> Iterator[str]:
    """Error codes: per response if the client's log shows bodies, otherwise those that the program met."""
    reported = [entry for entry in _reports(account, "failed") if entry["error_code"] is not None]
    decoded = {error["code"]: error["name"] for line in seen.lines for error in line.get("errors", ())}
    for entry in reported:
        if entry["error_code"] not in decoded:
            yield f"error: reported, but not decoded: {entry}"
    shown = [entry for entry in account.logged if entry["kind"] == "response" and "text" in entry]
    if not shown:
        for code, name in decoded.items():
            if name not in RETRIED and code not in {entry["error_code"] for entry in reported}:
                yield f"error: decoded, but not reported: {name}"
        return
    names = [name for name in ("api_key", "correlation_id", "client_id", "client_port") if name in shown[0]]
    theirs: dict[tuple[Any, ...], list[list[int]]] = defaultdict(list)
    for entry in shown:
        codes = sorted(int(code) for code in _ERROR_CODE.findall(entry["text"]) if int(code))
        theirs[tuple(entry[name] for name in names)].append(codes)
    for line in seen.lines:
        port = {"client_port": int(line["client"].rpartition(":")[2])}
        where = tuple({**line, **port}[name] for name in names)
        if line["type"] == "response" and where in theirs:
            ours = sorted(error["code"] for error in line["errors"])
            if ours not in theirs[where]:
                yield f"error: {line['api']} {where}: decoded {ours}, reported {theirs[where]}"


def software(account: Account, seen: Decoded) -> Iterator[str]:
    """The name and version that the client sends."""
    version = _reports(account, "client")[0]["version"]
    reported = {
        one["client_software_version"]
        for line in seen.messages("ApiVersions", "request")
        for one in objects(line["body"])
        if "client_software_version" in one
    }
    if not reported or any(version not in one for one in reported):
        yield f"software: decoded {sorted(reported)}, reported {version}"


COMPARISONS: tuple[Callable[[Account, Decoded], Iterator[str]], ...] = (
    each_report,
    messages,
    pairs,
    topics,
    produced,
    consumed,
    members,
    generations,
    assignments,
    commits,
    transactions,
    errors,
    software,
)
