"""Answers as data: the tables of an overview, as `stats` prints them and a report shows them.

Each renderer (`cli.render.tables`, the template of the page) gets the same rows and cells, so a number cannot differ
between them. All text from the wire goes through `word`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkasniff.enrich.hosts import Hosts
from kafkasniff.kafka.connection.waits import long_poll_apis
from kafkasniff.model import Endpoint
from kafkasniff.sinks.summaries.phrases import amount, rate
from kafkasniff.text.printable import cut, printable, word
from kafkasniff.text.times import clock_time, date_of, duration

if TYPE_CHECKING:
    # They need pyarrow, which the tables of `api` do without.
    from kafkasniff.analysis.overview.answer import (
        ApiStats,
        ClientStats,
        EncryptedStats,
        ErrorStats,
        GroupStats,
        OverviewAnswer,
        ProblemStats,
        TopicStats,
        Traffic,
    )
    from kafkasniff.analysis.security import ClientIdentity
    from kafkasniff.tls.descriptions import ShownCertificate

MAX_DETAIL: Final = 160
"""Maximum length of a sentence from the wire, in characters."""

ALWAYS: Final = 1 << 16
"""Above any level."""

Cell = Callable[[Any], str]


class ReportColumn(NamedTuple):
    """A column of a table; `cell` returns "" for nothing."""

    heading: str
    cell: Cell
    number: bool = False
    level: int = 0
    """Columns of the highest levels are hidden first if a screen is too narrow; those of level 0 never."""
    until: int = ALWAYS
    """Only while columns of this level are hidden, for which it stands."""
    whole: bool = False
    """Its text neither wraps nor is cut, as for numbers."""
    clipped: bool = False
    """Its text is cut to the room, one line per row."""


def named(columns: list[ReportColumn], hosts: Hosts | None, *, level: int = 0) -> list[ReportColumn]:
    """The same columns, with name and rack after each address; `level`: that of racks."""
    if hosts is None:
        return columns

    def looked_up(find: Callable[[str | None, int | None], str | None]) -> Cell:
        return lambda row: word(find(row.address, getattr(row, "port", None)) or "")

    more = [ReportColumn("name", looked_up(hosts.name)), ReportColumn("rack", looked_up(hosts.rack), level=level)]
    return [one for column in columns for one in (column, *(more if column.heading == "address" else ()))]


def moment(time_ns: int | None, *, days: bool = False) -> str:
    """A time of day, with its date if `days`; "" for none."""
    if time_ns is None:
        return ""
    return f"{date_of(time_ns)} {clock_time(time_ns)[:-7]}" if days else clock_time(time_ns)[:-3]


def spans_days(answer: OverviewAnswer) -> bool:
    """Whether times need their dates."""
    return answer.first is None or answer.last is None or date_of(answer.first) != date_of(answer.last)


def address(ip: str | None, port: int | None) -> str:
    """An endpoint; "" where it is unknown."""
    return "" if ip is None or port is None else printable(str(Endpoint(ip, port)))


def spans(numbers: Sequence[int], most: int) -> str:
    """Ascending numbers as `0, 4-9`: `most` ranges of them."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    ranges = [str(low) if low == high else f"{low}-{high}" for low, high in found[:most]]
    return ", ".join([*ranges, "…"] if len(found) > most else ranges)


def some_of(name: str) -> Cell:
    """A number, unless it is 0."""
    return lambda row: f"{getattr(row, name):,}" if getattr(row, name) else ""


def count_of(name: str) -> Cell:
    """A number."""
    return lambda row: f"{getattr(row, name):,}"


def bytes_of(name: str) -> Cell:
    """A number of bytes, unless it is 0."""
    return lambda row: amount(getattr(row, name)) if getattr(row, name) else ""


def software(row: ClientStats | ClientIdentity) -> str:
    """Name and version of a client's software."""
    return " ".join(word(one) for one in (row.software_name, row.software_version) if one is not None)


def latency_of(name: str) -> Callable[[ApiStats], str]:
    """A quantile of an API's latencies."""
    return lambda row: "" if row.latency is None else duration(getattr(row.latency, name) * 1000)


def records_of(flow: str) -> Callable[[TopicStats], str]:
    """Records of a topic that went this way, with their bytes."""

    def cell(row: TopicStats) -> str:
        traffic: Traffic = getattr(row, flow)
        return f"{traffic.records:,} ({amount(traffic.bytes)})" if traffic.batches or traffic.bytes else ""

    return cell


def rate_of(flow: str) -> Callable[[TopicStats], str]:
    """The same per second."""

    def cell(row: TopicStats) -> str:
        traffic: Traffic = getattr(row, flow)
        if not traffic.records or traffic.records_per_second is None or traffic.bytes_per_second is None:
            return ""
        return rate(traffic.records_per_second, traffic.bytes_per_second)

    return cell


def first_exchange(row: ErrorStats, *, days: bool) -> str:
    """The first exchange with an error."""
    who = "" if row.first_client_id is None else f" of {word(row.first_client_id)}"
    where = "" if row.first_client_address is None else f" at {printable(row.first_client_address)}"
    topic = "" if row.first_topic is None else f", topic {word(row.first_topic)}"
    api = "a response" if row.first_api is None else word(row.first_api)
    return f"{moment(row.first, days=days)} {api}{who}{where}{topic}"


def meaning_of(row: ErrorStats) -> str:
    """What an error code means, and whether a retry may succeed."""
    if row.code is None:
        return "codes in bodies, which the export does not have"
    return f"{row.meaning or row.name or 'unknown code'}{' (retriable)' if row.retriable else ''}"


def first_problem(row: ProblemStats, *, days: bool) -> str:
    """The first problem of a kind."""
    packet = "" if row.first_packet is None else f"packet {row.first_packet}: "
    return f"{moment(row.first, days=days)} {packet}{cut(printable(row.first_detail), MAX_DETAIL)}".lstrip()


def _generations(row: GroupStats) -> str:
    first, last = row.generation_first, row.generation_last
    if first is None or last is None:
        return ""
    return str(last) if first == last else f"{first}-{last}"


CLUSTER: Final = ReportColumn("cluster", lambda row: "" if row.cluster is None else word(row.cluster))
REQUESTS: Final = ReportColumn("requests", count_of("requests"), number=True)
ERRORS: Final = ReportColumn("errors", some_of("errors"), number=True)
GENERATIONS: Final = ReportColumn("generations", _generations, number=True)
MEMBERS: Final = ReportColumn("members", lambda row: "" if row.members is None else f"{row.members:,}", number=True)


NARROW: Final = 1
MIDDLE: Final = 2
WIDE: Final = 3
HUGE: Final = 4
"""Levels of optional columns."""
WAITS: Final = "waits"
MAX_VERSIONS: Final = 4
"""Version ranges shown per API."""


def _size(name: str) -> Callable[[TopicStats], str]:
    return lambda row: "" if getattr(row, name) is None else amount(getattr(row, name))


def _time(name: str) -> Callable[[EncryptedStats], str]:
    return lambda row: "" if getattr(row, name) is None else duration(1000 * getattr(row, name))


def _compression(row: TopicStats) -> str:
    codecs = ", ".join(word(one) for one in row.compression)
    if row.compression_ratio is None or row.compression == ["none"]:
        return codecs
    return f"{codecs} ({row.compression_ratio:.1f}x)"


def _median(row: ApiStats) -> str:
    """The median latency; there is none if all exchanges are long polls."""
    return WAITS if row.latency is None and row.responses and row.api in long_poll_apis() else _p50(row)


_p50: Final = latency_of("p50_us")
_SENT: Final = ReportColumn("sent", bytes_of("request_bytes"), number=True, level=WIDE)
_RECEIVED: Final = ReportColumn("received", bytes_of("response_bytes"), number=True, level=WIDE)
_BOTH: Final = ReportColumn(
    "bytes", lambda row: amount(row.request_bytes + row.response_bytes), number=True, until=WIDE
)
_UNANSWERED: Final = ReportColumn("unanswered", some_of("unanswered"), number=True, level=WIDE)

BROKERS: Final = [
    ReportColumn("id", lambda row: "" if row.broker_id is None else str(row.broker_id), number=True),
    ReportColumn("address", lambda row: address(row.address, row.port)),
    CLUSTER,
    ReportColumn("connections", some_of("connections"), number=True, level=NARROW),
    REQUESTS,
    ERRORS,
    _UNANSWERED,
    # What clients send is what a broker receives.
    _RECEIVED._replace(cell=_SENT.cell),
    _SENT._replace(cell=_RECEIVED.cell),
    _BOTH,
]
CLIENTS: Final = [
    ReportColumn("client id", lambda row: word(row.client_id)),
    ReportColumn("address", lambda row: "" if row.address is None else printable(row.address)),
    ReportColumn("software", software, level=NARROW),
    REQUESTS,
    ERRORS,
    _UNANSWERED,
    _SENT,
    _RECEIVED,
    _BOTH,
]
APIS: Final = [
    ReportColumn("API", lambda row: "(request not seen)" if row.api is None else word(row.api)),
    ReportColumn("versions", lambda row: spans(row.versions, MAX_VERSIONS), level=MIDDLE),
    ReportColumn("count", count_of("exchanges"), number=True),
    ERRORS,
    _UNANSWERED,
    ReportColumn("p50", _median, number=True),
    ReportColumn("p90", latency_of("p90_us"), number=True, level=NARROW),
    ReportColumn("p99", latency_of("p99_us"), number=True),
    ReportColumn("max", latency_of("max_us"), number=True, level=NARROW),
    _SENT,
    _RECEIVED,
    _BOTH._replace(level=NARROW),
]
TOPICS: Final = [
    ReportColumn("topic", lambda row: word(row.topic)),
    CLUSTER,
    ReportColumn("partitions", count_of("partitions"), number=True, level=HUGE),
    ReportColumn("produced", records_of("produced"), number=True),
    ReportColumn("rate", rate_of("produced"), number=True, level=MIDDLE),
    ReportColumn("fetched", records_of("fetched"), number=True),
    ReportColumn("rate", rate_of("fetched"), number=True, level=WIDE),
    ReportColumn("replicated", records_of("replicated"), number=True, level=NARROW),
    ReportColumn("record p50", _size("record_bytes_p50"), number=True, level=NARROW),
    ReportColumn("p99", _size("record_bytes_p99"), number=True, level=HUGE),
    ReportColumn("max", _size("record_bytes_max"), number=True, level=WIDE),
    ReportColumn("compression", _compression, level=NARROW),
]
GROUPS: Final = [
    ReportColumn("group", lambda row: word(row.group_id)),
    CLUSTER,
    ReportColumn("protocol", lambda row: ", ".join(row.protocols), level=NARROW),
    GENERATIONS._replace(level=NARROW),
    ReportColumn("rebalances", some_of("rebalances"), number=True),
    ReportColumn("clients", count_of("clients"), number=True, level=MIDDLE),
    MEMBERS._replace(level=NARROW),
    REQUESTS,
    ERRORS,
]
ENCRYPTED_TITLE: Final = "TLS without keys (times of answers are estimates)"
ENCRYPTED: Final = [
    ReportColumn("address", lambda row: address(row.address, row.port)),
    ReportColumn("connections", count_of("connections"), number=True),
    ReportColumn("resets", some_of("resets"), number=True, level=NARROW),
    ReportColumn("sent", bytes_of("client_bytes"), number=True, level=WIDE),
    ReportColumn("received", bytes_of("broker_bytes"), number=True, level=WIDE),
    ReportColumn("handshake p50", _time("handshake_p50_us"), number=True, level=NARROW),
    ReportColumn("max", _time("handshake_max_us"), number=True, level=MIDDLE),
    ReportColumn("answers", some_of("answers"), number=True),
    ReportColumn("about", _time("answer_p50_us"), number=True),
    ReportColumn("max", _time("answer_max_us"), number=True, level=NARROW),
    ReportColumn("unanswered", some_of("unanswered"), number=True),
]


def problem_columns(days: bool) -> list[ReportColumn]:
    """Columns of problems by kind; `days`: times need their dates."""
    return [
        ReportColumn("problem", lambda row: row.kind),
        ReportColumn("count", count_of("count"), number=True),
        ReportColumn("bytes", bytes_of("bytes"), number=True),
        ReportColumn("first", lambda row: first_problem(row, days=days)),
    ]


_AUTHENTICATION: Final = {
    "none": "no SASL",
    "begun": "authentication not seen to its end",
    "succeeded": "succeeded",
    "failed": "failed",
    "unserved": "no SASL, and no request was answered",
    "hidden": "encrypted",
    "unknown": "began before the capture",
}


def principal(row: ClientIdentity) -> str:
    """The name of a principal; "" where it is unknown."""
    return "" if row.principal is None else f"{'token ' if row.by_token else ''}{printable(row.principal)}"


def authentication(row: ClientIdentity) -> str:
    """The mechanism and its outcome."""
    mechanism = "" if row.mechanism is None else f"{printable(row.mechanism)} "
    return f"{mechanism}{_AUTHENTICATION[row.authentication]}"


def transport(row: ClientIdentity) -> str:
    """Version, cipher and host name of TLS, and what is known of certificates without one."""
    over = row.transport
    if not over.tls:
        return "no TLS"
    parts = [over.version or "TLS, handshake not captured"]
    if over.cipher is not None:
        parts.append(over.cipher)
    if over.server_name is not None:
        parts.append(f"for {printable(over.server_name)}")
    if over.certificate_note is not None:
        parts.append(f"certificate {over.certificate_note}")
    if over.without_client_certificate:
        parts.append("no client certificate")
    return ", ".join(parts)


def server_certificate(row: ClientIdentity) -> str:
    """Subject, issuer and last day; "" where it is unknown."""
    return _certificate(row.transport.certificate)


def client_certificate(row: ClientIdentity) -> str:
    """The same of the client's own."""
    return _certificate(row.transport.client_certificate)


def _certificate(certificate: ShownCertificate | None) -> str:
    if certificate is None:
        return ""
    return (
        f"{printable(certificate.subject)}, by {printable(certificate.issuer)}, until {certificate.not_after:%Y-%m-%d}"
    )


def _version(row: ClientIdentity) -> str:
    return (row.transport.version or "unknown") if row.transport.tls else "no"


def _cut(text: Cell) -> Cell:
    return lambda row: cut(text(row), MAX_DETAIL)


SECURITY: Final = [
    ReportColumn("listener", lambda row: row.broker),
    ReportColumn("address", lambda row: printable(row.client_ip)),
    ReportColumn("principal", _cut(principal)),
    ReportColumn("authentication", _cut(authentication)),
    ReportColumn("TLS", _version, level=1, until=5),
    ReportColumn("client id", _cut(lambda row: ", ".join(map(word, row.client_ids))), level=2),
    ReportColumn("connections", count_of("connections"), number=True, level=3),
    ReportColumn("transport", _cut(transport), level=5),
    ReportColumn("certificate", _cut(server_certificate), level=6),
    ReportColumn("client's certificate", _cut(client_certificate), level=6),
    ReportColumn("reason", _cut(lambda row: printable(row.reason or "")), level=4),
]


class AnswerTable(NamedTuple):
    """A table of an answer."""

    name: str
    """Key in the JSON of the answer."""
    title: str
    rows: Sequence[Any]
    columns: Sequence[ReportColumn]
    more: int = 0
    """Number of rows omitted at its end."""
    option: str = "--top"
    """What shows these."""
    hosts: Hosts | None = None
    """Names that replace the addresses in its cells."""

    @property
    def filled(self) -> list[ReportColumn]:
        """The columns that are not empty."""
        return [column for column in self.columns if any(column.cell(row) for row in self.rows)]


def overview_tables(
    answer: OverviewAnswer,
    identities: Sequence[ClientIdentity],
    errors: list[ReportColumn],
    *,
    top: int,
    hosts: Hosts | None = None,
) -> list[AnswerTable]:
    """The tables of an overview. `errors`: columns of error codes; `top`: rows of `identities` to show."""
    lists: list[tuple[str, str, Sequence[Any], list[ReportColumn]]] = [
        ("brokers", "Brokers", answer.brokers, BROKERS),
        ("clients", "Clients", answer.clients, CLIENTS),
        ("apis", "APIs", answer.apis, APIS),
        ("topics", "Topics", answer.topics, TOPICS),
        ("groups", "Groups", answer.groups, GROUPS),
        ("errors", "Errors", answer.errors, errors),
        ("encrypted", ENCRYPTED_TITLE, answer.encrypted, ENCRYPTED),
        ("problems", "Problems", answer.problems or [], problem_columns(spans_days(answer))),
        ("identities", "Security", identities[:top], SECURITY),
    ]
    more = {**answer.more, "identities": max(len(identities) - top, 0)}
    return [
        AnswerTable(name, title, rows, named(columns, hosts, level=MIDDLE), more.get(name, 0))
        for name, title, rows, columns in lists
    ]


def rebalance_columns(days: bool) -> list[ReportColumn]:
    """Columns of rebalances, rows of `Contents.generations`; `days`: times need their dates."""

    def lasted(row: dict[str, Any]) -> str:
        return "" if row["duration_us"] is None else duration(1000 * row["duration_us"])

    def number(name: str) -> Callable[[dict[str, Any]], str]:
        return lambda row: "" if row[name] is None else str(row[name])

    return [
        ReportColumn("group", lambda row: word(row["group_id"])),
        ReportColumn("cluster", lambda row: "" if row["cluster"] is None else word(row["cluster"])),
        ReportColumn(
            "begins", lambda row: moment(None if row["time_us"] is None else 1000 * row["time_us"], days=days)
        ),
        ReportColumn("protocol", lambda row: row["protocol"]),
        ReportColumn("generation", number("generation"), number=True),
        ReportColumn("lasts", lasted, number=True),
        ReportColumn("members", number("members"), number=True),
        ReportColumn("why", lambda row: cut(printable(row["cause"] or ""), MAX_DETAIL)),
    ]
