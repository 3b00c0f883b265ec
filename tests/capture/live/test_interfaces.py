from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable

import pytest

from kafkasniff.capture.live.interface_socket import (
    _address,
    _family,
    interface_name,
    list_interfaces,
    socket_processes,
)
from kafkasniff.errors import CaptureError


@pytest.mark.extended
def test_interfaces_match_ip(require_tool: Callable[[str], str]) -> None:
    reported = json.loads(subprocess.run([require_tool("ip"), "-j", "addr"], capture_output=True, check=True).stdout)
    found = {one.name: one for one in list_interfaces()}
    assert set(found) == {one["ifname"] for one in reported} | {"any"}
    for one in reported:
        ours = found[one["ifname"]]
        assert ("up" in ours.state) == ("UP" in one["flags"])
        assert ("loopback" in ours.state) == ("LOOPBACK" in one["flags"])
        assert set(ours.addresses) == {address["local"] for address in one["addr_info"]}


def test_interfaces_by_number() -> None:
    names = [one.name for one in list_interfaces()]
    assert [interface_name(str(number)) for number in range(1, len(names) + 1)] == names
    for name in ("eth0", "any", "lo", "", "१", "-1", "1x"):
        assert interface_name(name) == name
    for number in ("0", str(len(names) + 1), "9" * 40):
        with pytest.raises(CaptureError, match=f"lists all {len(names)}"):
            interface_name(number)


def test_addresses_in_the_format_of_other_systems() -> None:
    # struct sockaddr_in and sockaddr_in6 of macOS: a length byte precedes that of the family.
    four = bytes.fromhex("1002 0000 c0a80105 0000000000000000")
    six = bytes.fromhex("1c1e 0000 00000000 fe80 0004 0000 0000 0c42 a1ff fe00 0102 00000000")
    assert (_family(four, begins_with_length=True), _family(six, begins_with_length=True)) == (2, 30)
    assert _address(socket.AF_INET, four) == "192.168.1.5"
    # KAME's kernels store the interface's number (here 4) in a link-local address.
    assert _address(socket.AF_INET6, six) == "fe80::c42:a1ff:fe00:102"
    loopback = bytes.fromhex("1c1e 0000 00000000") + socket.inet_pton(socket.AF_INET6, "::1") + bytes(4)
    assert _address(socket.AF_INET6, loopback) == "::1"
    assert _family(struct.pack("=H", 10), begins_with_length=False) == 10


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_processes_of_sockets(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        with socket.create_connection((address, port)) as client, server.accept()[0]:
            shown = f"[{address}]" if ":" in address else address
            ends = [f"{shown}:{client.getsockname()[1]}", f"{shown}:{port}"]
            found = socket_processes([*ends, "192.0.2.1:9092", "broker:9092", ""])
    with open("/proc/self/comm") as file:
        assert found == dict.fromkeys(ends, f"{file.read().strip()} {os.getpid()}")
