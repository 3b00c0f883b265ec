"""Which bodies are wanted as columns, and the meanings of their fields as roles of a program's ops.

`entities.EntityPlan` is the equivalent of roles in Python. Versions that a program cannot express have no roles and are
left to Python; `kernel/exchange_facts.zig` has the roles.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.enrich.plan import NamePlan, adds_names, leaves_alone, message_plan, reads_nothing, teaches
from kafkasniff.enrich.sessions import uses_sessions
from kafkasniff.kafka.apis.entities import EntityPlan, plan_of
from kafkasniff.kafka.connection.waits import WaitPlan, wait_plan
from kafkasniff.kafka.messages.message_plan import MessagePlan, client_software, request_plan, response_plan
from kafkasniff.kafka.messages.rendered import careful, program_for
from kafkasniff.kafka.schema.definition import EntityChoice, Field, Struct
from kafkasniff.model import Direction, Message
from kafkasniff.native.caller import Program
from kafkasniff.native.columns import HAS_GROUPS, HAS_TRANSACTIONS, VALUES
from kafkasniff.native.feed import KEYS, NONE, VERSIONS
from kafkasniff.native.library import Kernel
from kafkasniff.native.lines import CAREFUL

# -- versions as numbers -----------------------------------------------------------------------------------------------


class ApiVersion(msgspec.Struct, frozen=True):
    """An API's version."""

    key: int
    version: int
    request: MessagePlan
    response: MessagePlan
    api: str | None
    flexible_response: bool
    """Responses have a byte for tagged fields before the body."""


@functools.lru_cache(maxsize=1024)
def client_id_text(raw: bytes) -> str | bytes:
    """A client id; bytes if it is not UTF-8. Cached, since every request of a connection repeats it."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


@functools.cache  # as many as there are codes
def version_of(code: int) -> ApiVersion:
    """The version that a code represents."""
    key, version = divmod(code, VERSIONS)
    plan = request_plan(key, version)
    answer = response_plan(key, version)
    return ApiVersion(key, version, plan, answer, plan.api, answer.header > 0)


def distinct(codes: NDArray[np.int64]) -> list[int]:
    """The distinct codes. `np.unique` sorts, and imports for 30 ms."""
    found: list[int] = np.flatnonzero(np.bincount(codes)).tolist()
    return found


# -- wanted bodies -----------------------------------------------------------------------------------------------------


DIRECTIONS: Final[tuple[Direction, Direction]] = ("request", "response")
NEVER, ALWAYS, WITH_ERRORS = range(3)
"""Whether a body of a kind is wanted (`exchange_columns.Wanted`)."""

Bodies = Mapping[tuple[Direction, str], tuple[str, ...] | None]
"""Wanted bodies by direction and API: all (None), or only those with one of these tagged fields."""


class WantedBodies:
    """Bodies that a consumer of rows wants. `errors`: also all with error codes; `every`: all."""

    def __init__(self, bodies: Bodies | None = None, *, errors: bool = False, every: bool = False) -> None:
        self._bodies = dict(bodies or {})
        self._errors = errors
        self._every = every

    def __or__(self, other: WantedBodies) -> WantedBodies:
        """What either of them wants."""
        united = dict(self._bodies)
        for place, fields in other._bodies.items():
            mine = united.get(place, ())
            united[place] = None if mine is None or fields is None else tuple(dict.fromkeys((*mine, *fields)))
        return WantedBodies(united, errors=self._errors or other._errors, every=self._every or other._every)

    def of(self, direction: Direction, api: str) -> int:
        """Whether a body without any of `fields` is wanted: `NEVER`, `ALWAYS` or `WITH_ERRORS`."""
        if self._every or self._bodies.get((direction, api), ()) is None:
            return ALWAYS
        return WITH_ERRORS if self._errors else NEVER

    def fields(self, direction: Direction, api: str) -> tuple[str, ...]:
        """Tagged fields for which a body is wanted."""
        return self._bodies.get((direction, api)) or ()

    def wants(self, message: Message) -> bool:
        """Whether the body of a message is wanted. Hot: called for each message that is emitted one by one."""
        api = message.api or ""
        wanted = self.of(message.type, api)
        if wanted == ALWAYS or (wanted == WITH_ERRORS and message.errors):
            return True
        body = message.body
        return body is not None and any(_is_given(body.get(field)) for field in self.fields(message.type, api))


EVERY_BODY: Final = WantedBodies(every=True)
NO_BODY: Final = WantedBodies()


def _is_given(value: Any) -> bool:
    """Whether a tagged field has another value than its default, which is null or -1 in all fields."""
    if isinstance(value, Mapping):
        return any(map(_is_given, value.values()))
    return value is not None and value != -1


# -- roles -------------------------------------------------------------------------------------------------------------


ROLES: Final = (
    *("none", "inside", "topic", "data_topic", "group", "transaction", "partition", "partitions", "offset"),
    *("watermark", "stable_offset", "code", "records", "member", "throttle", "topic_id", "rare", "facts"),
)
"""By number; from `FIRST_VALUE` on they are numbers of either message."""
FIRST_VALUE: Final = 32
RARE, FACTS = ROLES.index("rare"), ROLES.index("facts")
_ENDS: Final = {"high_watermark": "watermark", "last_stable_offset": "stable_offset"}
_NUMBERS: Final = frozenset({"int8", "int16", "error", "uint16", "int32", "uint32", "int64"})
SESSION: Final = ("session_id", "session_epoch")
"""Fields of a request that identify its fetch session."""
ANSWERS: Final = {"session_id": "given_session_id", "error_code": "given_error"}
"""Fields of a response that say what became of the session, and their names among `ExchangeKind.values`."""
FORGOTTEN: Final = "forgotten_topics_data"
"""Field of a request with partitions that it removes from its session."""
_EMPTY: Final = EntityPlan()


class ExchangeKind(NamedTuple):
    """How exchanges of a version of an API are read."""

    request: bytes
    """Programs of bodies."""
    response: bytes
    values: tuple[str, ...]
    """Fields with a needed number, in the order of the row's values: of the request, and `ANSWERS`."""
    wait: WaitPlan | None
    learns: bool
    """The response may contain facts about topics and brokers, and not only in one array that has the role `facts`."""
    session: bool
    """The exchange may belong to a fetch session."""
    choice: EntityChoice | None = None
    """What the names are that the kernel reads as groups, if that depends on a number (`settle_choices`)."""


class ExchangeKinds:
    """Kinds by the code of a version of an API, and the programs that readers of exchanges share.

    `names`: see `exchange_kind`; `bodies`: those that are wanted as JSON.
    """

    def __init__(
        self, kernel: Kernel, *, show_secrets: bool, names: bool = False, bodies: WantedBodies | None = None
    ) -> None:
        self._kernel = kernel
        self._show_secrets = show_secrets
        self._names = names
        self._wanted = NO_BODY if bodies is None else bodies
        self._codes: dict[int, ExchangeKind | None] = {}
        """As many as there are versions."""
        self.known: dict[int, ExchangeKind] = {}
        """Those of `of` so far that are not Python's."""
        self.programs = np.zeros(2 * KEYS * VERSIONS, np.uint64)
        """Their programs' addresses (`native.columns.ExchangeReader`)."""
        self.bodies = np.zeros(2 * KEYS * VERSIONS, np.uint8)
        """Whether their bodies are wanted, likewise."""
        self.careful = np.zeros(2 * KEYS * VERSIONS, CAREFUL)
        """What their problems need besides, likewise."""
        self._kept: list[bytes] = []
        self._programs: list[Program] = []

    def of(self, code: int) -> ExchangeKind | None:
        """What exchanges of this version are read by; None where they are Python's."""
        if code not in self._codes:
            api = version_of(code).api or ""
            fields = frozenset(field for one in DIRECTIONS for field in self._wanted.fields(one, api))
            kind = self._codes[code] = exchange_kind(
                *divmod(code, VERSIONS), show_secrets=self._show_secrets, names=self._names, rare=fields
            )
            if kind is not None:
                self.known[code] = kind
                plans = request_plan(*divmod(code, VERSIONS)), response_plan(*divmod(code, VERSIONS))
                for number, (one, plan) in enumerate(zip(DIRECTIONS, plans, strict=True)):
                    index = number * KEYS * VERSIONS + code
                    self.bodies[index] = self._wanted.of(one, api)
                    self.careful[index] = careful(plan, show_secrets=self._show_secrets).row(self._kept)
                request, response = Program(self._kernel, kind.request), Program(self._kernel, kind.response)
                self._programs += request, response
                self.programs[code], self.programs[KEYS * VERSIONS + code] = request.address, response.address
        return self._codes[code]

    def are_known(self, codes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these codes have a kind."""
        table = np.zeros(KEYS * VERSIONS, bool)
        for code in distinct(codes) if len(codes) else ():
            table[code] = self.of(code) is not None
        found: NDArray[np.bool_] = table[codes]
        return found


class _NotNativeError(Exception):
    """A program cannot express it."""


def exchange_kind(
    key: int, version: int, *, show_secrets: bool, names: bool = False, rare: frozenset[str] = frozenset()
) -> ExchangeKind | None:
    """How exchanges of a version of an API are read; None if they are left to Python.

    `names`: names of topic ids are known, and what is in a fetch session is added later. `rare`: tagged fields; bodies
    that have one are left to Python, too.
    """
    asked, answered = request_plan(key, version), response_plan(key, version)
    wait = wait_plan(key)
    if asked.schema is None or answered.schema is None or client_software(key) is not None:
        return None
    if not all(_may_add(key, version, one, names=names) for one in DIRECTIONS):
        return None
    if teaches(key, version, "request") or (wait is not None and wait.reason == "leader"):
        return None
    root, response_root = asked.schema.root, answered.schema.root
    top = {field.name for field in root.fields}
    if "members" in top:
        return None
    special_fields = {FORGOTTEN, *rare}
    if wait is not None and wait.replica_ids and wait.replica_id not in top:
        # Only replicas send the struct with their id.
        found = {path[0] for path in wait.replica_ids} & {field.name for field in root.tagged}
        if not found:
            return None
        special_fields |= found
    session = uses_sessions(key, version)
    wanted = ("acks",) if wait is None else ("acks", "min_bytes", wait.replica_id, *wait.limits)
    wanted += SESSION if session else ()
    choice = _choice_of(key, top)
    if choice is not None:
        wanted += (choice.field,)
    asked_values = tuple(dict.fromkeys(name for name in wanted if name is not None and name in top))
    given = ANSWERS if session else {}
    values = (*asked_values, *given.values())
    data = wait is not None or asked.has_records or answered.has_records
    if len(values) > VALUES:
        return None
    learnt = message_plan(key, version, "response")
    learns = not reads_nothing(key, version, "response") and learnt is not None
    tagged = {field.name for field in response_root.tagged}
    facts: set[str] = set()
    if learns and learnt is not None and not _learns(msgspec.structs.replace(learnt[0], children=())):
        # Whether the ids of named topics are known already, the kernel looks up.
        facts = {name for name, child in learnt[0].children if _learns_brokers(child)}
        # Few responses have a tagged field with facts.
        special_fields |= facts & tagged
        facts -= tagged
        learns = len(facts) > 1 or any(not _is_alone(child) for name, child in learnt[0].children if name in facts)
    special = dict.fromkeys(special_fields, RARE)
    places = special | {name: FIRST_VALUE + number for number, name in enumerate(asked_values)}
    answers = special | {name: FIRST_VALUE + values.index(own) for name, own in given.items()}
    answers["throttle_time_ms"] = ROLES.index("throttle")
    inner: dict[str, frozenset[str]] = {}
    if learnt is not None and not learns:
        structs = {field.name: field.struct for field in response_root.fields}
        for name, child in learnt[0].children:
            struct = structs[name] if name in facts else None
            fields = frozenset() if struct is None else _some_fields(struct, child)
            if fields:
                inner[name] = fields
            elif name in facts:
                answers[name] = FACTS
    try:
        programs = [
            program_for(
                plan,
                show_secrets=show_secrets,
                roles=_roles(key, direction, plan.schema.root, *special_roles, data=data),
            )
            for direction, plan, special_roles in zip(
                DIRECTIONS, (asked, answered), ((places, {}), (answers, inner)), strict=True
            )
            if plan.schema is not None
        ]
    except _NotNativeError:
        return None
    request, response = programs
    if request is None or response is None:
        return None
    return ExchangeKind(request, response, values, wait, learns, session, choice)


def settle_choices(rows: NDArray[np.void], codes: NDArray[np.int64], kinds: Mapping[int, ExchangeKind]) -> None:
    """Correct names that the kernel has read as groups; `rows`: of `native.columns.ROW`, with these codes."""
    for code in distinct(codes) if len(codes) else ():
        kind = kinds[code]
        if kind.choice is None:
            continue
        own = np.flatnonzero(codes == code)
        names, has = rows["group"][own], rows["has"][own]
        index = kind.values.index(kind.choice.field) if kind.choice.field in kind.values else None
        number = np.zeros(len(own), np.int64) if index is None else rows["values"][own, index]
        for column, entity, bit in (
            ("group", "group_id", HAS_GROUPS),
            ("transaction", "transactional_id", HAS_TRANSACTIONS),
        ):
            is_one = np.isin(number, [value for value, name in kind.choice.entities if name == entity])
            rows[column][own] = np.where(is_one, names, NONE)
            rows["has"][own] = rows["has"][own] & ~np.uint32(bit) | np.where(is_one & (has & HAS_GROUPS > 0), bit, 0)


def _choice_of(key: int, top: set[str]) -> EntityChoice | None:
    """On what the meaning of a name in requests depends; `top`: the fields of the request."""
    plan = plan_of(key, "request")
    entity_choices = [] if plan is None else [choice for name, choice in plan.choices if name in top]
    return entity_choices[0] if entity_choices else None


def _may_add(key: int, version: int, direction: Direction, *, names: bool) -> bool:
    """Whether all that an enricher adds to messages of this kind is known to the kernel."""
    if names:
        return adds_names(key, version, direction)
    return leaves_alone(key, version, direction) or reads_nothing(key, version, direction)


def _learns(plan: NamePlan) -> bool:
    """Whether a response with such a struct may report facts."""
    names_topic = plan.topic is not None and plan.topic_id is not None
    return names_topic or plan.host is not None or any(_learns(child) for _, child in plan.children)


def _learns_brokers(plan: NamePlan) -> bool:
    return plan.host is not None or any(_learns_brokers(child) for _, child in plan.children)


def _is_alone(plan: NamePlan) -> bool:
    """Whether the facts of a struct need nothing of the one around it."""
    return plan.host is not None and plan.node is not None and not plan.children


def _some_fields(struct: Struct, plan: NamePlan) -> frozenset[str]:
    """The fields with facts about brokers if they follow each other, and the struct has others; else none."""
    wanted = {name for name in (plan.node, plan.host, plan.port, plan.rack) if name is not None}
    places = [index for index, field in enumerate(struct.fields) if field.name in wanted]
    if len(places) != len(wanted) or places[-1] - places[0] >= len(places) or len(places) == len(struct.fields):
        return frozenset()
    return frozenset(wanted)


def _roles(
    key: int,
    direction: Direction,
    root: Struct,
    special: Mapping[str, int],
    facts: Mapping[str, frozenset[str]],
    *,
    data: bool,
) -> list[int]:
    """A role for each op of the layout's program; `special`: roles of fields of the body, where it has them.

    `facts`: fields with facts in structs of the body.
    """
    plan = plan_of(key, direction)
    if plan is None or plan.nested is not None:
        raise _NotNativeError
    special = {"member_id": ROLES.index("member"), **special}
    return [0, *_struct(root, plan, special, facts, request=direction == "request", data=data)]


def _struct(
    struct: Struct,
    plan: EntityPlan,
    special: Mapping[str, int],
    facts: Mapping[str, frozenset[str]],
    *,
    request: bool,
    data: bool,
) -> list[int]:
    """The roles of the ops in a struct."""
    own = _own(struct, plan, request=request, data=data)
    children = dict(plan.children)
    found: list[int] = []
    inside = False
    whole = {RARE, FACTS}
    for field in (*struct.fields, *struct.tagged):
        role = ROLES.index(own[field.name]) if field.name in own else special.get(field.name, 0)
        below: list[int] = []
        if field.struct is not None:
            inner = children.get(field.name, _EMPTY)
            if request and inner.choices:
                raise _NotNativeError
            own_facts = dict.fromkeys(facts.get(field.name, ()), FACTS)
            below = _struct(field.struct, inner, own_facts, {}, request=request, data=data)
            if role not in whole:
                role = ROLES.index("inside") if any(below) else 0
            if role and field.nullable and not field.array and field.tag is None:
                raise _NotNativeError
            inside = inside or ROLES[role] == "inside"
            if role in whole or field.tag is not None:
                if role == FACTS and any(below):
                    raise _NotNativeError
                below = [0] * len(below)
        elif role and role not in whole:
            _check(field, role, own.get(field.name, ""))
            # The struct's own fields come before its nested ones.
            if inside and field.name in own:
                raise _NotNativeError
        if role and field.tag is not None:
            role = RARE
        found += role, *below
    return found


def _own(struct: Struct, plan: EntityPlan, *, request: bool, data: bool) -> dict[str, str]:
    """Roles of a struct's own fields."""
    names = {field.name for field in struct.fields} | {field.name for field in struct.tagged}
    lists = [name for name in plan.topic_lists if name in names]
    indices = [name for name in plan.index_lists if name in names]
    choices = [name for name, _ in plan.choices if name in names] if request else []
    if len(choices) > 1 or (choices and (plan.groups or plan.transactions)):
        raise _NotNativeError
    if (lists and (plan.topic in names or plan.topic_id in names)) or len(indices) > 1 or len(plan.records) > 1:
        raise _NotNativeError
    topic = "data_topic" if data else "topic"
    found = dict.fromkeys(lists, topic)
    if plan.topic_id in names and plan.topic_id is not None:
        found[plan.topic_id] = "topic_id"
    if plan.topic is not None:
        found[plan.topic] = topic
    if request:
        # What they are depends on another field (`settle_choices`).
        found |= dict.fromkeys((*plan.groups, *choices), "group") | dict.fromkeys(plan.transactions, "transaction")
    if plan.index is not None:
        found[plan.index] = "partition"
        found |= dict.fromkeys([name for name in plan.offsets if name in names][:1], "offset")
        found |= dict.fromkeys(plan.records, "records")
        if not request:
            found |= dict.fromkeys([name for name in plan.errors if name in names][:1], "code")
            found |= {field: role for field, role in _ENDS.items() if field in plan.ends}
    return found | dict.fromkeys(indices, "partitions")


def _check(field: Field, role: int, name: str) -> None:
    """Whether the kernel can read a field in its role."""
    if name in {"topic", "data_topic", "group", "transaction"} or role == ROLES.index("member"):
        right = field.type == "string" and field.secret == "no" and not (field.array and role == ROLES.index("member"))
    elif name == "topic_id":
        right = field.type == "uuid" and not field.array
    elif name == "records":
        right = field.type == "records" and not field.array
    elif name == "partitions":
        right = field.type == "int32" and field.array
    else:
        right = field.type in _NUMBERS and not field.array and not field.nullable
    if not right:
        raise _NotNativeError
