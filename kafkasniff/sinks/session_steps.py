"""Reads what Fetch requests do to their sessions, without decoding most of them.

A request of a session lists the partitions whose offsets have changed, and so the same ones again and again. The effect
of a list is kept by its topics and partitions, which the kernel copies from the body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkasniff.enrich.sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionStep
from kafkasniff.kafka.messages.message_plan import request_plan
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.definition import Struct
from kafkasniff.kafka.schema.program import program_of
from kafkasniff.kafka.schema.schema import Schema
from kafkasniff.native.caller import Program
from kafkasniff.native.chosen import CHOSEN, INSIDE, ChosenFields
from kafkasniff.native.feed import VERSIONS
from kafkasniff.native.library import Kernel
from kafkasniff.native.sessions import CHANGE, PARTITION, TOPIC

__all__ = ["MAX_KEPT", "MAX_LIST", "SessionSteps", "known_session"]

MAX_KEPT: Final = 1 << 11
"""Lists that are kept; then all are read again."""
MAX_LIST: Final = 1 << 10
"""Bytes of topics and partitions of a list that is kept. Longer ones are decoded every time."""

_OPTIONS: Final = DecodeOptions(records="skip")
_PARTITIONS: Final = {"topic": CHOSEN, "topic_id": CHOSEN, "partitions": {"partition": CHOSEN}}
_FORGOTTEN: Final = {"topic": CHOSEN, "topic_id": CHOSEN, "partitions": CHOSEN}
_LISTS: Final = {"topics": _PARTITIONS, "forgotten_topics_data": _FORGOTTEN}
"""The fields that `SessionStep.of_request` reads, apart from the session's number and epoch."""
_KNOWN: Final = {
    "topics": {"topic": TOPIC, "topic_id": TOPIC, "partitions": {"partition": PARTITION}},
    "forgotten_topics_data": CHANGE,
}
"""The same for `native.sessions`."""


def known_session(kernel: Kernel, code: int) -> Program:
    """The program that reads the partitions of a version of Fetch for `native.sessions`."""
    return Program(kernel, _program(code, _KNOWN))


class SessionSteps:
    """The steps of requests, by their bytes."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._lists: dict[int, ChosenFields] = {}
        """By the code of a version of Fetch."""
        self._kept: dict[tuple[int, bytes], SessionStep | None] = {}

    def of(
        self, code: int, message: memoryview, address: int, body: int, identity: tuple[int, int]
    ) -> SessionStep | None:
        """The step of a request; see `SessionStep.of_request`. Hot.

        `address`: of the message's bytes; `body`: where the body begins; `identity`: the session's number and epoch.
        Raises Odd for a body that cannot be decoded.
        """
        number, epoch = identity
        # The other epochs begin or end sessions, which is rare, and they read less of the lists.
        if epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            return _read(code, message, body)
        lists = self._lists.get(code) or self._new(code)
        copied = lists.of(address, len(message), body)
        if copied is None:
            return _read(code, message, body)
        key = code, copied
        kept = self._kept.get(key)
        if kept is None:
            kept = _read(code, message, body)
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[key] = kept
        # The lists of a request's step never change.
        return None if kept is None else SessionStep(number, epoch, kept.by_id, kept.added, kept.forgotten)

    def _new(self, code: int) -> ChosenFields:
        made = self._lists[code] = ChosenFields(self._kernel, _program(code, _LISTS), MAX_LIST)
        return made


def _schema(code: int) -> Schema:
    schema = request_plan(*divmod(code, VERSIONS)).schema
    assert schema is not None
    return schema


def _read(code: int, message: memoryview, body: int) -> SessionStep | None:
    data = message.tobytes()
    found, _ = _schema(code).decode(data, body, len(data), DecodeContext(_OPTIONS))
    return SessionStep.of_request(found)


def _program(code: int, wanted: Mapping[str, object]) -> bytes:
    root = _schema(code).root
    return program_of(root, roles=[0, *_roles(root, wanted)])


def _roles(struct: Struct, wanted: Mapping[str, object]) -> list[int]:
    """A role for each op of a struct's fields."""
    found: list[int] = []
    for field in (*struct.fields, *struct.tagged):
        role = wanted.get(field.name, 0)
        found.append(role if isinstance(role, int) else INSIDE)
        if field.struct is not None:
            found += _roles(field.struct, role if isinstance(role, Mapping) else {})
    return found
