"""Summaries of what moves data: Produce, Fetch, ListOffsets, ShareFetch … and of transactions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from kafkasniff.model import Body
from kafkasniff.sinks.names import enum_name
from kafkasniff.sinks.printable import word
from kafkasniff.sinks.summaries.kraft import record_types
from kafkasniff.sinks.summaries.phrases import (
    SHOWN,
    Summarise,
    count,
    few,
    lists,
    named_partitions,
    partitions,
    records_phrase,
    rows,
    topic_of,
)

__all__ = ["REQUESTS", "RESPONSES", "acks_word"]


def _listed(phrases: list[str], total: int) -> str:
    """Phrases of the first partitions, and how many partitions there are besides them."""
    more = total - len(phrases)
    if more > 0:
        phrases = [*phrases, f"+{count(more, 'partition')}"]
    return "; ".join(phrases)


def _partition_count(topics: object, field: str) -> int:
    return sum(len(lists(topic.get(field))) for topic in rows(topics))


@lru_cache(maxsize=64)  # an int16 from the wire; Kafka takes three
def acks_word(acks: int | None) -> str:
    """`all`, `leader`, `none`; the number of any other."""
    return (enum_name("acks", acks) or str(acks)).lower()


def _produce_request(body: Body) -> str:
    topics = body.get("topic_data")
    phrases: list[str] = []
    for name, item in partitions(topics, "partition_data", "index"):
        records = records_phrase(item.get("records"))
        phrases.append(f"{name} {records}" if records else name)
        if len(phrases) == SHOWN:
            break
    text = _listed(phrases, _partition_count(topics, "partition_data") if len(phrases) == SHOWN else len(phrases))
    text += f", acks {acks_word(body.get('acks'))}"
    transactional_id = body.get("transactional_id")
    return text if transactional_id is None else f"{text}, transaction {word(transactional_id)}"


def _produce_response(body: Body) -> str:
    topics = body.get("responses")
    phrases = []
    good = 0
    for name, item in partitions(topics, "partition_responses", "index"):
        if not item.get("error_code"):
            good += 1
            if good <= SHOWN:
                phrases.append(f"{name} offset {item.get('base_offset')}")
    return _listed(phrases, good)


def _session(body: Body) -> str:
    session, known = body.get("session_id"), body.get("_session")
    if not session:
        return ""
    # What it holds is known where its beginning was seen.
    held = count(known["partitions"], "partition") if isinstance(known, dict) else ""
    return f"session {session}: {held}" if held else f"session {session}"


def _fetch_request(body: Body) -> str:
    topics = body.get("topics")
    phrases = []
    for name, item in partitions(topics, "partitions", "partition"):
        phrases.append(f"{name} from {item.get('fetch_offset')}")
        if len(phrases) == SHOWN:
            break
    named = _listed(phrases, _partition_count(topics, "partitions") if len(phrases) == SHOWN else len(phrases))
    session = _session(body)
    parts = [named] if named else []
    if not parts and "_session" not in body:
        # KIP-227: in a session only changes are sent, and most requests change nothing.
        parts = ["no changes"] if session else ["no topics"]
    forgotten = _partition_count(body.get("forgotten_topics_data"), "partitions")
    if forgotten:
        parts.append(f"forgets {count(forgotten, 'partition')}")
    if session:
        parts.append(session if body.get("session_epoch") != -1 else f"closes {session}")
    state = body.get("replica_state")
    replica = state.get("replica_id") if isinstance(state, dict) else body.get("replica_id")
    if isinstance(replica, int) and replica >= 0:
        parts.append(f"replica {replica}")
    if body.get("isolation_level"):
        parts.append("read committed")
    return ", ".join(parts)


def _fetch_response(body: Body) -> str:
    phrases: list[str] = []
    total = empty = 0
    for name, item in partitions(body.get("responses")):
        if item.get("error_code"):
            continue
        total += 1
        records = item.get("records")
        batches = records.get("batches") if isinstance(records, dict) else None
        if not batches:
            empty += 1
        if len(phrases) < SHOWN and batches:
            types = record_types(name, records)
            phrases.append(
                f"{name} {records_phrase(records)} from {batches[0].get('base_offset')}"
                f"{f' ({types})' if types else ''}, high watermark {item.get('high_watermark')}"
            )
        elif len(phrases) < SHOWN and total - empty == 0 and total <= SHOWN:
            phrases.append(f"{name} no records, high watermark {item.get('high_watermark')}")
    return _listed(phrases, total) if total or body.get("error_code") or body.get("responses") else "nothing new"


def _list_offsets_request(body: Body) -> str:
    phrases = []
    for name, item in partitions(body.get("topics")):
        timestamp = item.get("timestamp")
        code = enum_name("list_offsets_timestamp", timestamp)
        phrases.append(f"{name} {code.lower().replace('_', ' ')}" if code else f"{name} at time {timestamp}")
    return few(phrases, "; ")


def _list_offsets_response(body: Body) -> str:
    phrases = []
    for name, item in partitions(body.get("topics")):
        if item.get("error_code"):
            continue
        offset = item.get("offset")
        if offset is None:
            # v0 answered with a list, newest first.
            phrases.append(f"{name} offsets {few([str(one) for one in lists(item.get('old_style_offsets'))])}")
        else:
            phrases.append(f"{name} offset {offset}")
    return few(phrases, "; ")


def _delete_records_request(body: Body) -> str:
    return few([f"{name} before {item.get('offset')}" for name, item in partitions(body.get("topics"))], "; ")


def _delete_records_response(body: Body) -> str:
    found = partitions(body.get("topics"))
    return few(
        [f"{name} now from {item.get('low_watermark')}" for name, item in found if not item.get("error_code")], "; "
    )


def _leader_epoch_request(body: Body) -> str:
    found = partitions(body.get("topics"), "partitions", "partition")
    return few([f"{name} epoch {item.get('leader_epoch')}" for name, item in found], "; ")


def _leader_epoch_response(body: Body) -> str:
    found = partitions(body.get("topics"), "partitions", "partition")
    return few(
        [
            f"{name} epoch {item.get('leader_epoch', '?')} ends at {item.get('end_offset')}"
            for name, item in found
            if not item.get("error_code")
        ],
        "; ",
    )


def _acknowledged(topics: object) -> int:
    """Acknowledgement batches of a share request."""
    return sum(len(lists(item.get("acknowledgement_batches"))) for _, item in partitions(topics))


def _share_request(body: Body) -> str:
    topics = body.get("topics")
    parts = [f"group {word(body.get('group_id'))}"]
    named = named_partitions(topics)
    if named:
        parts.append(named)
    acknowledged = _acknowledged(topics)
    if acknowledged:
        parts.append(f"acknowledges {acknowledged} {'range' if acknowledged == 1 else 'ranges'}")
    epoch = body.get("share_session_epoch")
    code = enum_name("share_session_epoch", epoch)
    parts.append(f"session epoch {epoch}" if code is None else f"{code.lower()} session epoch")
    return ", ".join(parts)


def _share_fetch_response(body: Body) -> str:
    phrases = []
    for name, item in partitions(body.get("responses")):
        if item.get("error_code"):
            continue
        acquired: list[Body] = rows(item.get("acquired_records"))
        taken = sum(_span(one) for one in acquired)
        phrases.append(f"{name} {records_phrase(item.get('records'))}, {taken} acquired")
    return few(phrases, "; ")


def _span(item: Body) -> int:
    first, last = item.get("first_offset"), item.get("last_offset")
    return last - first + 1 if isinstance(first, int) and isinstance(last, int) else 0


def _share_acknowledge_response(body: Body) -> str:
    return named_partitions(body.get("responses"))


def _producer(body: Body) -> str:
    return f"producer {body.get('producer_id')} epoch {body.get('producer_epoch')}"


def _init_producer_id_request(body: Body) -> str:
    transactional_id = body.get("transactional_id")
    kind = "idempotent" if transactional_id is None else f"transaction {word(transactional_id)}"
    known = body.get("producer_id", -1)
    return f"{kind}, {_producer(body)}" if isinstance(known, int) and known >= 0 else kind


def _init_producer_id_response(body: Body) -> str:
    return "" if body.get("error_code") else _producer(body)


def _add_partitions_request(body: Body) -> str:
    transactions = body.get("transactions")
    if transactions is not None:
        parts = []
        for item in rows(transactions):
            named = named_partitions(item.get("topics"))
            verify = " verify only" if item.get("verify_only") else ""
            parts.append(f"transaction {word(item.get('transactional_id'))}{verify}, {_producer(item)}, {named}")
        return few(parts, "; ")
    named = named_partitions(body.get("v3_and_below_topics"))
    producer = f"producer {body.get('v3_and_below_producer_id')} epoch {body.get('v3_and_below_producer_epoch')}"
    return f"transaction {word(body.get('v3_and_below_transactional_id'))}, {producer}, {named}"


def _add_partitions_response(body: Body) -> str:
    results: list[Any] = [item.get("topic_results") for item in rows(body.get("results_by_transaction"))]
    named = (
        named_partitions(topics, "results_by_partition")
        for topics in (*results, body.get("results_by_topic_v3_and_below"))
    )
    return few([one for one in named if one], "; ")


def _add_offsets_request(body: Body) -> str:
    group = word(body.get("group_id"))
    return f"transaction {word(body.get('transactional_id'))}, {_producer(body)}, group {group}"


def _end_txn_request(body: Body) -> str:
    result = (enum_name("transaction_result", body.get("committed")) or "?").lower()
    return f"{result} transaction {word(body.get('transactional_id'))}, {_producer(body)}"


def _end_txn_response(body: Body) -> str:
    # v5 (KIP-890): the epoch moves on with every transaction.
    return _producer(body) if "producer_id" in body and not body.get("error_code") else ""


def _txn_offset_commit_request(body: Body) -> str:
    offsets = few([f"{name} at {item.get('committed_offset')}" for name, item in partitions(body.get("topics"))])
    return f"transaction {word(body.get('transactional_id'))}, group {word(body.get('group_id'))}, {offsets}"


def _write_txn_markers_request(body: Body) -> str:
    parts = []
    for item in rows(body.get("markers")):
        result = (enum_name("transaction_result", item.get("transaction_result")) or "?").lower()
        topics = few([topic_of(topic) for topic in rows(item.get("topics"))])
        parts.append(f"{result} {_producer(item)} in {topics}")
    return few(parts, "; ")


REQUESTS: Final[dict[int, Summarise]] = {
    0: _produce_request,
    1: _fetch_request,
    2: _list_offsets_request,
    21: _delete_records_request,
    22: _init_producer_id_request,
    23: _leader_epoch_request,
    24: _add_partitions_request,
    25: _add_offsets_request,
    26: _end_txn_request,
    27: _write_txn_markers_request,
    28: _txn_offset_commit_request,
    78: _share_request,
    79: _share_request,
}
"""By API key."""

RESPONSES: Final[dict[int, Summarise]] = {
    0: _produce_response,
    1: _fetch_response,
    2: _list_offsets_response,
    21: _delete_records_response,
    22: _init_producer_id_response,
    23: _leader_epoch_response,
    24: _add_partitions_response,
    26: _end_txn_response,
    78: _share_fetch_response,
    79: _share_acknowledge_response,
}
