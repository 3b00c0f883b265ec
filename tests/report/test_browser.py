"""The page in a real browser: no script errors, no requests, and what can be clicked does what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import chromium
from tests.cli.console import kafkasniff
from tests.craft.write import write_pcap
from tests.test_hostile_strings import packets

pytest.importorskip("vl_convert")
pytest.importorskip("jinja2")
pytestmark = [pytest.mark.extended, pytest.mark.xdist_group("browser")]

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


def opened(browser: Any, path: Path, anchor: str = "") -> None:
    """Open a page anew; it must request only itself and log no error."""
    browser.get("about:blank")
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(f"{path.as_uri()}{anchor}")
    quiet(browser, path)


def quiet(browser: Any, path: Path) -> None:
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    assert {url.partition("#")[0] for url in asked} <= {path.as_uri()}


def shown(browser: Any, selector: str) -> list[str]:
    """Text of the elements that are to be seen."""
    script = (
        "return [...document.querySelectorAll(arguments[0])].filter(one => one.checkVisibility())"
        ".map(one => one.textContent.trim())"
    )
    found: list[str] = browser.execute_script(script, selector)
    return found


def test_it_opens_without_complaint_and_draws(browser: Any, page: Path) -> None:
    opened(browser, page)
    assert "java-group-classic.pcap" in browser.title
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('svg.chart')].map(one => one.querySelectorAll('path,rect').length)"
    )
    assert len(boxes) > 8
    assert min(boxes) > 0
    # Colours of charts are those of the page.
    fills = browser.execute_script(
        "return [...document.querySelectorAll('svg.chart path')].map(one => getComputedStyle(one).fill)"
    )
    assert "rgb(47, 111, 179)" in fills


def test_filters(browser: Any, page: Path) -> None:
    opened(browser, page)
    before = shown(browser, "#apis tbody tr")
    box = browser.find_element("css selector", "input[data-filter=apis]")
    box.send_keys("GROUP join")
    rows = shown(browser, "#apis tbody tr")
    assert [row for row in rows if "JoinGroup" in row] == rows != []
    assert shown(browser, "#apis output") == [f"{len(rows)} of {len(before)}"]
    box.clear()
    box.send_keys("<b>")
    assert shown(browser, "#apis tbody tr") == []
    quiet(browser, page)


def test_a_link_opens_its_target(browser: Any, page: Path) -> None:
    opened(browser, page)
    script = "return document.querySelectorAll('details.ladder')[1].querySelector('li[id]').id"
    place = browser.execute_script(script)
    assert place.startswith("connection-")
    assert shown(browser, f"#{place}") == []
    opened(browser, page, f"#{place}")
    assert len(shown(browser, f"#{place}")) == 1
    assert browser.execute_script("return document.querySelector(':target').id") == place
    # From the findings by a click.
    links = browser.find_elements("css selector", ".evidence a")
    if links:
        target = links[-1].get_attribute("href").partition("#")[2]
        browser.execute_script("arguments[0].click()", links[-1])
        assert len(shown(browser, f"[id='{target}']")) == 1
    quiet(browser, page)


def paper(browser: Any) -> str:
    found: str = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    return found


def test_light_and_dark(browser: Any, page: Path) -> None:
    light, dark = "rgb(255, 255, 255)", "rgb(20, 23, 28)"
    for scheme, first, second, third in (("light", light, light, dark), ("dark", dark, light, dark)):
        feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
        opened(browser, page)
        button = browser.find_element("id", "theme")
        colours = [paper(browser)]
        for _ in range(2):
            button.click()
            colours.append(paper(browser))
        assert colours == [first, second, third]
        button.click()
        assert button.text == "theme: auto"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_hostile_names_do_nothing(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "evil.html"
    capture = write_pcap(tmp_path / "evil.pcap", packets(EVIL))
    assert kafkasniff("report", capture, "-o", path, "-q").code == 0
    opened(browser, path)
    assert "owned" not in browser.title
    assert shown(browser, "img") == []


def test_the_policy_stops_what_slips_through(browser: Any, page: Path, tmp_path: Path) -> None:
    """Were something not escaped, it would not run, and nothing would be asked for."""
    path = tmp_path / "slipped.html"
    inside = "<script>document.title='owned'</script><img src=http://127.0.0.1:9/x onerror=document.title='owned'>"
    path.write_text(page.read_text().replace("<footer>", f"{inside}<footer>"))
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(path.as_uri())
    assert "owned" not in browser.title
    reported = [entry["message"] for entry in browser.get_log("browser")]
    assert sum("Content Security Policy" in one for one in reported) >= 2
