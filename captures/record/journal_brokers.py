"""The requests that a broker of before Kafka 4 says it has served: its request log, ``kafka.request.logger``.

It names each request when its response has gone out, with the connection, in four ways:

- 0.8 and 0.9: ``Name: FetchRequest; Version: 0; CorrelationId: 5; ClientId: x; …`` of requests that Scala classes read;
- 0.9 and 0.10: ``{api_key=0,api_version=2,correlation_id=1,client_id=x}``;
- 0.11 to 2.6: ``RequestHeader(apiKey=FETCH, apiVersion=5, clientId=x, correlationId=1)``;
- from 2.7 on JSON.

What an authenticator reads (ApiVersions before the log-in, SaslHandshake, SaslAuthenticate) is not in that log. Bodies
are omitted, because Kafka's classes decode them better.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from .api_names import api_key, api_name
from .journal import Entry

_SCALA = re.compile(
    r"Completed request:Name: ?(?P<api>\w+?)(?:Request)?; ?Version: ?(?P<version>\d+);.*?CorrelationId: ?(?P<id>-?\d+);"
)
_SCALA_CLIENT = re.compile(r"; ?ClientId: ?(?:Some\()?(?P<client>[^;)]*)\)?;")
_STRUCT = re.compile(
    r"Completed request:\{api_key=(?P<key>\d+),api_version=(?P<version>\d+),correlation_id=(?P<id>-?\d+),"
    r"client_id=(?P<client>.*?)\} -- "
)
_HEADER = re.compile(
    r"Completed request:RequestHeader\(apiKey=(?P<api>\w+), apiVersion=(?P<version>\d+), clientId=(?P<client>.*?), "
    r"correlationId=(?P<id>-?\d+)\) -- "
)
_JSON = re.compile(r"Completed request:(?P<json>\{\".*\})$")
_CONNECTION = re.compile(r" from (?:client /[\d.]+:|connection [\d.]+:\d+-[\d.]+:)(?P<port>\d+)(?:-\d+)?;totalTime:")


def broker_log(lines: Iterable[str]) -> Iterator[Entry]:
    """All requests of the log."""
    for line in lines:
        if "Completed request:" in line and (told := _request(line)):
            yield told


def _request(line: str) -> Entry | None:
    if found := _JSON.search(line):
        said = json.loads(found["json"])
        header = said["requestHeader"]
        port = int(said["connection"].split("-")[1].rpartition(":")[2])
        values = (header["requestApiKey"], header["requestApiVersion"], header["correlationId"], header["clientId"])
        return _entry(*values, port)
    connection = _CONNECTION.search(line)
    if connection is None:
        return None
    if found := _HEADER.search(line):
        key, client = api_key(found["api"]), found["client"]
    elif found := _STRUCT.search(line):
        key, client = int(found["key"]), found["client"]
    elif found := _SCALA.search(line):
        key = api_key(found["api"])
        named = _SCALA_CLIENT.search(line)
        client = named["client"] if named else None
    else:
        return None
    return _entry(key, int(found["version"]), int(found["id"]), client, int(connection["port"]))


def _entry(key: int, version: int, correlation: int, client: str | None, port: int) -> Entry:
    return {
        "kind": "request",
        "api_key": key,
        "api": api_name(key),
        "api_version": version,
        "correlation_id": correlation,
        "client_id": client,
        "client_port": port,
    }
