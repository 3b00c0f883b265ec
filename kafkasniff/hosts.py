"""Names and racks of addresses, from a file like /etc/hosts that the user gives (`--hosts`).

    # brokers
    10.0.0.9          broker-1                    rack=eu-1a
    127.0.0.1:9092    broker-2                    rack=eu-1b
    fd00::7           billing  billing.internal   rack=eu-1a
    10.0.1.0/24       rack=eu-1a

A line is an address, perhaps with a port (`[::1]:9092`), its name, further names that are not used, and `rack=`
(`zone=` is the same). A network has a rack only. What stands first counts, of networks the narrowest; `#` begins a
comment. So /etc/hosts itself will do.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Self

from kafkasniff.errors import UsageError

__all__ = ["MAX_HOSTS_BYTES", "MAX_NETWORKS", "Hosts"]

MAX_HOSTS_BYTES: Final = 16 << 20
"""Bytes of a file: some hundred thousand hosts."""
MAX_NETWORKS: Final = 4_096
"""Networks, each of which may be asked about an address."""
MAX_NAME: Final = 255
"""Characters of a name, as of a host's (RFC 1035, 2.3.4), or of a rack."""
_MAX_PORT: Final = 65_535
_RACKS: Final = ("rack", "zone")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Hosts:
    """What a file says of addresses, which are text as in `Endpoint.address`."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._racks: dict[str, str] = {}
        self._networks: list[tuple[_Network, str]] = []

    @classmethod
    def load(cls, path: str) -> Self:
        """Read a file. Raises UsageError, which points at the line, where it cannot be read or makes no sense."""
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
        """Read the text of a file; `path` is what messages call it. Raises UsageError."""
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
        """Names by `ADDRESS`, and by `ADDRESS:PORT` as `str(Endpoint)` where the file has a port."""
        return self._names

    def name(self, address: str | None, port: int | None = None) -> str | None:
        """The name of an address, or of an endpoint; None where the file has none."""
        return _found(self._names, address, port)

    def rack(self, address: str | None, port: int | None = None) -> str | None:
        """The rack of an address, or of an endpoint, by itself or by its network; None where the file has none."""
        rack = _found(self._racks, address, port)
        if rack is not None or address is None or not self._networks:
            return rack
        place = _address(address)
        if place is None:
            return None
        return next((told for network, told in self._networks if place in network), None)

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
                raise ValueError(f"{key}= is not known: rack= is")
            if rack is not None:
                raise ValueError("there are two racks")
            rack = value
        if rack == "":
            raise ValueError("the rack has no name")
        for word in (*names, rack or ""):
            if len(word) > MAX_NAME or not word.isprintable():
                raise ValueError(f"a name of {len(word)} characters, or with some that cannot be printed")
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
            raise ValueError(f"{text} is a network: it can have a rack, and no name")
        if len(self._networks) >= MAX_NETWORKS:
            raise ValueError(f"more than {MAX_NETWORKS} networks")
        try:
            self._networks.append((ipaddress.ip_network(text), rack))
        except ValueError as error:
            raise ValueError(f"no network: {error}") from None


def _found(told: Mapping[str, str], address: str | None, port: int | None) -> str | None:
    if address is None:
        return None
    if port is not None:
        exact = told.get(f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
        if exact is not None:
            return exact
    return told.get(address)


@lru_cache(maxsize=4096)  # the same addresses again and again
def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _place(text: str) -> str:
    """An address, or one with a port, as `Endpoint` has it. Raises ValueError."""
    host, port = text, ""
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or not port.startswith(":"):
            raise ValueError(f"{text} is no address: [ADDRESS]:PORT")
        port = port[1:]
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    address = _address(host)
    if address is None:
        raise ValueError(f"{text} is no address")
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    place = str(mapped or address)
    if host == text:
        return place
    if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) <= _MAX_PORT):
        raise ValueError(f"{text}: {port!r} is no port")
    return f"[{place}]:{int(port)}" if ":" in place else f"{place}:{int(port)}"
