from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable

import pytest

from kafkasniff.capture.interfaces import hardware_type, interface_name, list_interfaces
from kafkasniff.errors import CaptureError


def test_what_ip_says(require_tool: Callable[[str], str]) -> None:
    told = json.loads(subprocess.run([require_tool("ip"), "-j", "addr"], capture_output=True, check=True).stdout)
    found = {one.name: one for one in list_interfaces()}
    assert set(found) == {one["ifname"] for one in told} | {"any"}
    for one in told:
        ours = found[one["ifname"]]
        assert ("up" in ours.state) == ("UP" in one["flags"])
        assert ("loopback" in ours.state) == ("LOOPBACK" in one["flags"])
        assert set(ours.addresses) == {address["local"] for address in one["addr_info"]}


def test_what_tcpdump_says(require_tool: Callable[[str], str]) -> None:
    """The same names; tcpdump has devices that are no network interfaces, too."""
    told = subprocess.run([require_tool("tcpdump"), "-D"], capture_output=True, text=True, check=True).stdout
    running = {name for name, words in re.findall(r"^\d+\.(\S+) .*?\[(.*?)\]", told, re.M) if "Running" in words}
    ours = {one.name for one in list_interfaces() if "running" in one.state}
    assert running - {"any"} == ours


def test_those_in_use_come_first_and_all_together_last() -> None:
    found = list_interfaces()
    assert found[-1].name == "any"
    ranks = [("up" not in one.state, "running" not in one.state, "loopback" in one.state) for one in found[:-1]]
    assert ranks == sorted(ranks)


def test_interfaces_by_number() -> None:
    names = [one.name for one in list_interfaces()]
    assert [interface_name(str(number)) for number in range(1, len(names) + 1)] == names
    for name in ("eth0", "any", "lo", "", "१", "-1", "1x"):
        assert interface_name(name) == name
    for number in ("0", str(len(names) + 1), "9" * 40):
        with pytest.raises(CaptureError, match=f"there are {len(names)}"):
            interface_name(number)


def test_an_interface_that_is_called_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.capture.interfaces.socket.if_nameindex", lambda: [(1, "lo"), (2, "2")])
    assert interface_name("2") == "2"
    assert interface_name("3") == "any"


def test_hardware_types() -> None:
    assert hardware_type("lo") == 772
    for name in ("nosuch0", "", "x" * 40, "bad\0name"):
        with pytest.raises(CaptureError) as caught:
            hardware_type(name)
        assert "lo" in str(caught.value)
