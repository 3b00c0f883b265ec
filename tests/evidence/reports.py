"""What the clients report in the sidecars, compared with the golden lines: of each kind of report that follows from
several messages, or from the content of records. Kafka's classes read the others (`test_evidence.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.evidence.decoded import Decoded, Entry, Record, has, to_bytes
from tests.evidence.internal_reports import internal_record


def _same_record(entry: Entry, one: Record) -> bool:
    """Whether a record is the one of a report; what the report omits is not compared."""
    reported: dict[str, Any] = {"key": one.record["key"], "value": one.record["value"]}
    reported |= {"topic": one.topic, "partition": one.partition}
    # A record without a timestamp: -1 in the clients, null in magic 0.
    reported["timestamp"] = -1 if one.record["timestamp"] is None else one.record["timestamp"]
    reported["headers"] = [[header["key"], header["value"]] for header in one.record.get("headers", ())]
    if one.batch["compression"] != "none":  # clients leave a batch as it is where compression does not make it smaller
        reported["codec"] = one.batch["compression"]
    reported["timestamp_type"] = one.batch.get("timestamp_type")
    reported["producer_id"], reported["producer_epoch"] = one.batch.get("producer_id"), one.batch.get("producer_epoch")
    if entry.get("timestamp", 0) is None:
        entry = {**entry, "timestamp": -1}
    if entry.get("offset") is not None:
        reported["offset"] = one.offset
    return has(reported, {name: value for name, value in entry.items() if name in reported})


def _authenticated(seen: Decoded, entry: Entry) -> bool:
    if not seen.found("SaslHandshake", "request", entry["client_id"], mechanism=entry["mechanism"]):
        return False
    tokens = [line["body"]["auth_bytes"] for line in seen.messages("SaslAuthenticate", "request", shown=True)]
    tokens += [line["token"] for line in seen.open_lines if line["type"] == "sasl"]
    if entry["mechanism"] == "OAUTHBEARER":
        # RFC 7628: pairs between control-A characters, the token's first (RFC 6750), then extensions (KIP-342).
        pairs = [f"auth=Bearer {entry['token']}", *(f"{name}={value}" for name, value in entry["extensions"].items())]
        return any(set(to_bytes(one).split(b"\x01")) >= {pair.encode() for pair in pairs} for one in tokens)
    if entry["mechanism"] == "PLAIN":
        # RFC 4616: whom to act for (often empty), who, password.
        return any(
            to_bytes(one).split(b"\0")[1:] == [entry[name].encode() for name in ("user", "password")] for one in tokens
        )
    # RFC 5802: the client's first message names the user.
    return any(f"n={entry['user']},".encode() in to_bytes(one) for one in tokens)


def _committed(seen: Decoded, entry: Entry) -> bool:
    if "offsets" not in entry and "partition" not in entry:
        fields = {"member_id": entry["group"], "generation_id_or_member_epoch": entry["generation"]}
        return seen.found("OffsetCommit", "request", **fields)
    found = seen.offsets("OffsetCommit", "request", "committed_offset", entry["group"])
    if "partition" in entry:
        wanted = {f"{entry['topic']}-{entry['partition']}": entry["offset"]}
    else:
        prefix = f"{entry['topic']}-" if "topic" in entry else ""
        wanted = {prefix + partition: offset for partition, offset in entry["offsets"].items()}
    noted = "metadata" not in entry or seen.found("OffsetCommit", "request", committed_metadata=entry["metadata"])
    return noted and all(offset in found.get(partition, ()) for partition, offset in wanted.items())


def _transaction(seen: Decoded, entry: Entry) -> bool:
    committed = entry["committed"] if "committed" in entry else entry["result"] == "commit"
    ended = seen.found("EndTxn", "request", transactional_id=entry["transactional_id"], committed=committed)
    values = {one.record["value"] for one in seen.produced if isinstance(one.record["value"], str)}
    if "committed_offset" in entry:
        # The newest versions are not known to the definitions: then the line has the bytes.
        unknown = any(line.get("api") == "TxnOffsetCommit" and line["body"] is None for line in seen.lines)
        reported = {"partition_index": entry["partition"], "committed_offset": entry["committed_offset"]}
        return ended and (unknown or seen.found("TxnOffsetCommit", "request", **reported))
    return ended and set(entry.get("values", ())) <= values


CHECKS: dict[str, Callable[[Decoded, Entry], bool]] = {
    "authenticated": _authenticated,
    "committed": _committed,
    "consumed": lambda seen, entry: any(_same_record(entry, one) for one in seen.consumed),
    "internal_record": internal_record,
    "produced": lambda seen, entry: any(_same_record(entry, one) for one in seen.produced),
    "transaction": _transaction,
}
