"""Names and racks of addresses, from a user's file in the style of /etc/hosts (`--hosts`).

    # brokers
    10.0.0.9          broker-1                    rack=eu-1a
    127.0.0.1:9092    broker-2                    rack=eu-1b
    fd00::7           billing  billing.internal   rack=eu-1a
    10.0.1.0/24       rack=eu-1a

A line is an address, optionally with a port (`[::1]:9092`), its name, further names that are ignored, and `rack=`
(`zone=` is the same). A network has only a rack. The first entry counts, and the narrowest network; `#` begins a
comment. So /etc/hosts itself is valid.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Self

from kafkasniff.errors import UsageError

MAX_HOSTS_BYTES: Final = 16 << 20
"""Maximum size of a file in bytes: some hundred thousand hosts."""
MAX_NETWORKS: Final = 4_096
"""Maximum number of networks, each of which may have to be compared with an address."""
MAX_NAME: Final = 255
"""Maximum number of characters of a name, as for host names (RFC 1035, 2.3.4), or of a rack."""
_MAX_PORT: Final = 65_535
_ADDRESS: Final = re.compile(
    r"(?<![\w.:\[])(?:\[(?P<bracketed>[0-9a-f:.]+)\](?=:\d)|(?P<bare>\d+(?:\.\d+){3}|[0-9a-f]*:[0-9a-f:]*[0-9a-f]))"
    r"(?::(?P<port>\d{1,5}))?(?![\w]|\.\d)"
)
"""What may be an address, as `Endpoint` writes it."""
_RACKS: Final = ("rack", "zone")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Hosts:
    """The contents of a file about addresses, which are text as in `Endpoint.address`."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._racks: dict[str, str] = {}
        self._networks: list[tuple[_Network, str]] = []

    @classmethod
    def load(cls, path: str) -> Self:
        """Read a file. Raises UsageError, which names the line, if it cannot be read or is invalid."""
        try:
            with open(path, "rb") as stream:
                data = stream.read(MAX_HOSTS_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise UsageError(f"cannot read {path}: {reason or error}") from error
        if len(data) > MAX_HOSTS_BYTES:
            raise UsageError(f"{path} is longer than {MAX_HOSTS_BYTES >> 20} MiB")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise UsageError(f"{path}:{line}: not UTF-8") from None
        return cls.parse(text, path)

    @classmethod
    def parse(cls, text: str, path: str = "hosts") -> Self:
        """Parse the text of a file; `path` is its name in messages. Raises UsageError."""
        hosts = cls()
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition("#")[0].split()
            try:
                if words:
                    hosts._line(words)
            except ValueError as error:
                raise UsageError(f"{path}:{number}: {error}") from None
        hosts._networks.sort(key=lambda one: -one[0].prefixlen)
        return hosts

    @property
    def names(self) -> Mapping[str, str]:
        """Names by `ADDRESS`, and by `ADDRESS:PORT` as `str(Endpoint)` if the file has a port."""
        return self._names

    def name(self, address: str | None, port: int | None = None) -> str | None:
        """The name of an address or endpoint; None if the file has none."""
        return _found(self._names, address, port)

    def shown(self, text: str) -> str:
        """A text of ours with names in place of the addresses that the file names; ports stay."""
        return _ADDRESS.sub(self._named, text)

    def _named(self, match: re.Match[str]) -> str:
        address, port = match["bracketed"] or match["bare"], match["port"]
        name = self.name(address, None if port is None else int(port))
        if name is None:
            return match[0]
        return name if port is None else f"{name}:{port}"

    def rack(self, address: str | None, port: int | None = None) -> str | None:
        """The rack of an address or endpoint, by itself or by its network; None if the file has none."""
        rack = _found(self._racks, address, port)
        if rack is not None or address is None or not self._networks:
            return rack
        place = _address(address)
        if place is None:
            return None
        return next((rack for network, rack in self._networks if place in network), None)

    def _line(self, words: list[str]) -> None:
        """Take a line. Raises ValueError, which says what is wrong with it."""
        first, *rest = words
        names = [word for word in rest if "=" not in word]
        rack: str | None = None
        for word in rest:
            key, is_option, value = word.partition("=")
            if not is_option:
                continue
            if key not in _RACKS:
                raise ValueError(f"{key}= is unknown: use rack=")
            if rack is not None:
                raise ValueError("there are two racks")
            rack = value
        if rack == "":
            raise ValueError("the rack has no name")
        for word in (*names, rack or ""):
            if len(word) > MAX_NAME or not word.isprintable():
                raise ValueError(f"a name of {len(word)} characters, or with unprintable ones")
        if not names and rack is None:
            raise ValueError(f"{first} has neither a name nor a rack")
        if "/" in first:
            self._network(first, names, rack)
            return
        place = _place(first)
        if names:
            self._names.setdefault(place, names[0])
        if rack is not None:
            self._racks.setdefault(place, rack)

    def _network(self, text: str, names: list[str], rack: str | None) -> None:
        if names or rack is None:
            raise ValueError(f"{text} is a network: it can have a rack, but no name")
        if len(self._networks) >= MAX_NETWORKS:
            raise ValueError(f"more than {MAX_NETWORKS} networks")
        try:
            self._networks.append((ipaddress.ip_network(text), rack))
        except ValueError as error:
            raise ValueError(f"not a network: {error}") from None


def _found(facts: Mapping[str, str], address: str | None, port: int | None) -> str | None:
    if address is None:
        return None
    if port is not None:
        exact = facts.get(f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
        if exact is not None:
            return exact
    return facts.get(address)


@lru_cache(maxsize=4096)  # the same addresses occur repeatedly
def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _place(text: str) -> str:
    """An address, or one with a port, in the form of `Endpoint`. Raises ValueError."""
    host, port = text, ""
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or not port.startswith(":"):
            raise ValueError(f"{text} is not an address: use [ADDRESS]:PORT")
        port = port[1:]
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    address = _address(host)
    if address is None:
        raise ValueError(f"{text} is not an address")
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    place = str(mapped or address)
    if host == text:
        return place
    if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) <= _MAX_PORT):
        raise ValueError(f"{text}: {port!r} is not a port")
    return f"[{place}]:{int(port)}" if ":" in place else f"{place}:{int(port)}"
