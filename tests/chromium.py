"""The system's Chromium, without a window; it keeps what it asks the network for and what it complains of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import missing


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        missing("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update", "--disable-extensions",
                     f"--user-data-dir={profile}", "--window-size=1280,900"):  # fmt: skip
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # Named, so that nothing is looked up or fetched.
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield found
    finally:
        found.quit()
