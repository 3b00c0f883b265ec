"""Sidecars: what a client says it did, and the requests and responses that its debug log names.

A line of a sidecar is one JSON object. ``request`` and ``response`` lines come from the client's own protocol log and
hold ``api_key``, ``api``, ``api_version`` and, if that log has them, ``correlation_id``, ``client_id``,
``client_port``, ``node``, ``size`` (the length prefix of the message), ``text`` (the body as the client prints it),
``data`` (the same as JSON) and ``error``. All other lines are the client program's reports.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from .api_names import api_key, api_name

Entry = dict[str, Any]
LogParser = Callable[[Iterable[str]], Iterator[Entry]]

TEXT_LIMIT = 6000
"""Longest text of a body that is kept, in characters; longer ones are omitted, because a part proves nothing."""

REPEATED_TEXT_LIMIT = 1000
"""Characters of a text that may be written more than once."""

_JAVA_HEADER = (
    r"header RequestHeader\(apiKey=(?P<api>\w+), apiVersion=(?P<version>\d+), clientId=(?P<client>.*?), "
    r"correlationId=(?P<id>-?\d+)(?:, headerVersion=\d+)?\)"
)
_JAVA_SENDING = re.compile(
    rf"Sending \w+ request with {_JAVA_HEADER} and timeout \d+ to node (?P<node>\S+): (?P<text>.*)$"
)
_JAVA_RECEIVED = re.compile(
    rf"Received \w+ response from node (?P<node>\S+) for request with {_JAVA_HEADER}: (?P<text>.*)$"
)
# SaslClientAuthenticator talks before NetworkClient does, and names no body.
_RDKAFKA = re.compile(
    r"\|(?P<client>[^|]*?)#(?:producer|consumer)-\d+\| \[thrd:.*?\]: (?P<node>\S+): "
    r"(?P<verb>Sent|Received) (?P<api>\w+?)(?:Request|Response) \(v(?P<version>\d+), (?P<size>\d+) bytes"
    r"(?: @ \d+)?, CorrId (?P<id>\d+)"
)
# kafka-python 3: connections are named by node and local port, not by client id.
_PYTHON = re.compile(
    r"<KafkaConnection node_id=(?P<node>[\w-]+) host=\[\S+<-(?P<port>\d+)\].*?>:? "
    r"(?P<verb>Request|Response) (?P<id>\d+)(?: \([\d.]+ ms\))?: "
    r"(?P<text>(?P<api>\w+?)(?:Request|Response)\(version=(?P<version>\d+).*)$"
)

# kafka-python 2: the version is part of the class's name.
_OLD_PYTHON = re.compile(
    r"<BrokerConnection node_id=(?P<node>[\w-]+) host=.*?> (?P<verb>Request|Response) (?P<id>\d+)"
    r"(?: \([\d.]+ ms\))?: (?P<text>(?P<api>[A-Za-z]+?)(?:Request|Response)_v(?P<version>\d+)\(.*)$"
)
# aiokafka: the same, but only the broker's address is named.
_AIOKAFKA = re.compile(
    r"(?P<verb>Request|Response) (?:to|from) (?P<node>\S+) (?P<id>\d+): "
    r"(?P<text>(?P<api>[A-Za-z]+?)(?:Request|Response)_v(?P<version>\d+)\(.*)$"
)
_KAFKAJS = re.compile(r"^(?P<verb>Request|Response) \w+\(key: (?P<key>\d+), version: (?P<version>\d+)\)$")
_FRANZ = re.compile(
    r"clientId=(?P<client>\S+) \[DEBUG\] (?P<verb>wrote|read) (?P<api>\w+) v(?P<version>\d+); broker: (?P<node>\w+), "
    r"bytes_(?:written|read): (?P<size>\d+)"
)


def java_log(lines: Iterable[str]) -> Iterator[Entry]:
    """``org.apache.kafka.clients.NetworkClient`` at debug: headers and bodies, both directions."""
    for line in lines:
        for kind, pattern in (("request", _JAVA_SENDING), ("response", _JAVA_RECEIVED)):
            if found := pattern.search(line):
                yield _entry(kind, found)


def java_headers(lines: Iterable[str]) -> Iterator[Entry]:
    """The same without bodies, for applications that say the same many times."""
    for entry in java_log(lines):
        entry.pop("text", None)
        yield entry


def rdkafka_log(lines: Iterable[str]) -> Iterator[Entry]:
    """librdkafka with ``debug=protocol``: headers and sizes.

    Its sizes: of a request the bytes sent with the length prefix's four; of a response those after its correlation id.
    """
    for line in lines:
        if found := _RDKAFKA.search(line):
            kind = "request" if found["verb"] == "Sent" else "response"
            entry = _entry(kind, found)
            entry["size"] = int(found["size"]) + (-4 if kind == "request" else 4)
            yield entry


def kafka_python_log(lines: Iterable[str]) -> Iterator[Entry]:
    """kafka-python at debug: headers and bodies as ``repr``."""
    for line in lines:
        if found := _PYTHON.search(line):
            yield _entry("request" if found["verb"] == "Request" else "response", found)


def old_kafka_python_log(lines: Iterable[str]) -> Iterator[Entry]:
    """kafka-python before 3 at debug: headers without client ids, bodies as ``repr``."""
    for line in lines:
        if found := _OLD_PYTHON.search(line):
            yield _entry("request" if found["verb"] == "Request" else "response", found)


def aiokafka_log(lines: Iterable[str]) -> Iterator[Entry]:
    """aiokafka at debug: headers without client ids, bodies as ``repr``."""
    for line in lines:
        if found := _AIOKAFKA.search(line):
            yield _entry("request" if found["verb"] == "Request" else "response", found)


def kafkajs_log(lines: Iterable[str]) -> Iterator[Entry]:
    """kafkajs at debug, written as JSON lines: headers, sizes of messages, bodies of responses."""
    for line in lines:
        if not line.startswith("{"):
            continue
        said = json.loads(line)
        # A response with an error is logged twice, the second time without its size.
        if (found := _KAFKAJS.match(said["message"])) and "size" in said:
            key = int(found["key"])
            entry: Entry = {"kind": found["verb"].lower(), "api_key": key, "api": api_name(key)}
            entry |= {"api_version": int(found["version"]), "correlation_id": said["correlationId"]}
            entry |= {"client_id": said["clientId"], "node": said["broker"]}
            entry["size"] = said["size"] - (4 if entry["kind"] == "request" else 0)  # it counts a request's prefix
            entry |= {name: said[name] for name in ("error", "data") if name in said and said[name] != "[filtered]"}
            yield entry


def franz_log(lines: Iterable[str]) -> Iterator[Entry]:
    """franz-go at debug: APIs, versions and sizes, but no correlation ids.

    Its sizes are of what went over the wire, the length prefix's four bytes included.
    """
    for line in lines:
        if (found := _FRANZ.search(line)) and found["size"] != "0":  # a read that failed
            key = api_key(found["api"])
            entry: Entry = {
                "kind": "request" if found["verb"] == "wrote" else "response",
                "api_key": key,
                "api": api_name(key),
            }
            entry |= {"api_version": int(found["version"]), "client_id": found["client"], "node": found["node"]}
            yield entry | {"size": int(found["size"]) - 4}


def _entry(kind: str, found: re.Match[str]) -> Entry:
    key = api_key(found["api"])
    entry: Entry = {"kind": kind, "api_key": key, "api": api_name(key), "api_version": int(found["version"])}
    entry["correlation_id"] = int(found["id"])
    groups = found.groupdict()
    if "client" in groups:
        entry["client_id"] = groups["client"]
    if "port" in groups:
        entry["client_port"] = int(groups["port"])
    entry["node"] = found["node"]
    text = groups.get("text")
    if text is not None and len(text) <= TEXT_LIMIT:
        entry["text"] = text
    return entry


def read_reports(file: Path) -> list[Entry]:
    """Lines that a client program wrote to its stdout."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("{")]


def write_sidecar(file: Path, entries: Iterable[Entry]) -> None:
    """One entry per line, UTF-8.

    A long text that an earlier line holds is not repeated: ``text_of_line`` gives that line's number, from 1.
    """
    seen: dict[str, int] = {}
    with file.open("w", encoding="utf-8") as out:
        for number, entry in enumerate(entries, 1):
            shown = dict(entry)
            text = entry.get("text", "")
            if len(text) > REPEATED_TEXT_LIMIT and seen.setdefault(text, number) != number:
                del shown["text"]
                shown["text_of_line"] = seen[text]
            out.write(json.dumps(shown, ensure_ascii=False, separators=(",", ":")) + "\n")


def count_requests(entries: Iterable[Entry]) -> dict[str, dict[str, int]]:
    """Requests per API and version that the client's log names: ``{"Fetch": {"13": 4}}``, in order of keys."""
    counts: Counter[tuple[int, int]] = Counter()
    for entry in entries:
        if entry["kind"] == "request":
            counts[entry["api_key"], entry["api_version"]] += 1
    table: dict[str, dict[str, int]] = {}
    for (key, version), number in sorted(counts.items()):
        table.setdefault(api_name(key), {})[str(version)] = number
    return table
