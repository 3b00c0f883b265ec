"""The summaries of what nearly all traffic is, for bodies that are whole and have nothing odd.

Each gives what the summary of its API gives (`data`, `groups`, `cluster`; a test compares), in a third of the time: it
takes fields as being there. For any other body it returns None or raises one of `UNUSUAL`, and the summary of the API
is asked. Responses come without errors and throttling. All are hot, so nothing is collected that is not shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kafkasniff.model import Body
from kafkasniff.sinks.printable import WORDS
from kafkasniff.sinks.summaries.data import acks_word
from kafkasniff.sinks.summaries.kraft import INTERNAL
from kafkasniff.sinks.summaries.phrases import SHOWN, amount, count, few, records_phrase

__all__ = ["UNUSUAL", "USUAL_REQUESTS", "USUAL_RESPONSES"]

UNUSUAL: Final = (KeyError, TypeError, ValueError, AttributeError)
"""What the functions raise where a field is missing or of another type."""

Usual = Callable[[Body], str | None]


def _topic(topic: Body) -> str:
    # The first field that a topic's struct has, by version; an id without a name is unusual.
    if "name" in topic:
        return WORDS[topic["name"]]
    return WORDS[topic["topic"] if "topic" in topic else topic["_topic_name"]]


def _and_more(told: str, total: int) -> str:
    """The phrases of the first partitions, and how many there are besides."""
    return f"{told}; +{count(total - SHOWN, 'partition')}"


def _records(records: Body) -> str:
    """`records_phrase`, at once for a single batch whose records are counted."""
    batches = records["batches"]
    if len(batches) == 1:
        batch = batches[0]
        number, codec = batch["record_count"], batch["compression"]
        if number is not None:
            told = f"{number} record{'' if number == 1 else 's'} {amount(batch['batch_length'] + 12)}"
            return told if codec == "none" else f"{told} {codec}"
    return records_phrase(records)


def _produce_request(body: Body) -> str | None:
    if body.get("transactional_id") is not None:
        return None
    told, total = "", 0
    for topic in body["topic_data"]:
        name = _topic(topic)
        for item in topic["partition_data"]:
            total += 1
            if total <= SHOWN:
                one = f"{name}-{item['index']} {_records(item['records'])}"
                told = f"{told}; {one}" if told else one
    if total > SHOWN:
        told = _and_more(told, total)
    return f"{told}, acks {acks_word(body['acks'])}"


def _produce_response(body: Body) -> str | None:
    told, total = "", 0
    for topic in body["responses"]:
        name = _topic(topic)
        for item in topic["partition_responses"]:
            if item["error_code"]:
                return None
            total += 1
            if total <= SHOWN:
                one = f"{name}-{item['index']} offset {item['base_offset']}"
                told = f"{told}; {one}" if told else one
    return (told or None) if total <= SHOWN else _and_more(told, total)


def _fetch_request(body: Body) -> str | None:
    if body.get("forgotten_topics_data") or "replica_state" in body or body.get("replica_id", -1) >= 0:
        return None
    told, total = "", 0
    for topic in body["topics"]:
        name = _topic(topic)
        for item in topic["partitions"]:
            total += 1
            if total <= SHOWN:
                one = f"{name}-{item['partition']} from {item['fetch_offset']}"
                told = f"{told}; {one}" if told else one
    if total > SHOWN:
        told = _and_more(told, total)
    session = body.get("session_id")
    if session:
        if body["session_epoch"] == -1 or "_session" not in body:
            return None
        # KIP-227: most requests in a session change nothing.
        held = f"session {session}: {count(body['_session']['partitions'], 'partition')}"
        told = f"{told}, {held}" if told else held
    elif not told:
        return None
    return f"{told}, read committed" if body.get("isolation_level") else told


def _fetch_response(body: Body) -> str | None:
    responses = body["responses"]
    if not responses:
        return None if body.get("error_code") else "nothing new"
    told, total, shown, full = "", 0, 0, False
    for topic in responses:
        name = _topic(topic)
        if name.startswith(INTERNAL):
            return None
        for item in topic["partitions"]:
            if item["error_code"]:
                return None
            total += 1
            if shown == SHOWN:
                continue
            records = item["records"]
            if records is not None and records["batches"]:
                full = True
                some = f"{_records(records)} from {records['batches'][0]['base_offset']}"
            elif full:
                continue  # partitions without records are shown as long as none has any
            else:
                some = "no records"
            shown += 1
            one = f"{name}-{item['partition_index']} {some}, high watermark {item['high_watermark']}"
            told = f"{told}; {one}" if told else one
    if total > shown:
        return f"{told}; +{count(total - shown, 'partition')}"
    return told or None


def _metadata_request(body: Body) -> str | None:
    topics = body["topics"]
    if topics is None:
        return "all topics"
    return few([_topic(topic) for topic in topics]) or None


def _metadata_response(body: Body) -> str | None:
    controller = body["controller_id"]
    if controller < 0:
        return None
    told = f"{count(len(body['brokers']), 'broker')}, controller {controller}"
    topics = body["topics"]
    for topic in topics[:SHOWN]:
        told = f"{told}, {_topic(topic)} ({count(len(topic['partitions']), 'partition')})"
    for topic in topics:
        if topic["error_code"]:
            return None
    return told if len(topics) <= SHOWN else f"{told}, +{len(topics) - SHOWN} more"


def _offset_commit_request(body: Body) -> str | None:
    told, total = f"group {WORDS[body['group_id']]}", 0
    for topic in body["topics"]:
        name = _topic(topic)
        for item in topic["partitions"]:
            total += 1
            if total <= SHOWN:
                told = f"{told}, {name}-{item['partition_index']} at {item['committed_offset']}"
    if not total:
        return None
    return told if total <= SHOWN else f"{told}, +{total - SHOWN} more"


def _heartbeat_request(body: Body) -> str | None:
    member = body["member_id"]
    if not member or body.get("group_instance_id") is not None:
        return None
    return f"group {WORDS[body['group_id']]}, generation {body['generation_id']}, member {WORDS[member]}"


USUAL_REQUESTS: Final[dict[int, Usual]] = {
    0: _produce_request,
    1: _fetch_request,
    3: _metadata_request,
    8: _offset_commit_request,
    12: _heartbeat_request,
}
"""By API key."""

USUAL_RESPONSES: Final[dict[int, Usual]] = {
    0: _produce_response,
    1: _fetch_response,
    3: _metadata_response,
}
