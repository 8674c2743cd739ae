"""A real browser, and a broker in a process of its own for it to look at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException

from tests.browser.harness import Operator
from tests.support.daemon import DaemonProcess, running

#: With this in the environment a missing browser is a failure, and no reason to skip (`make browser-tests`).
DEMANDED: Final = "BARTLEBY_BROWSER_TESTS"

SETTINGS: Final = """
[broker]
name = "orders"
[acceptors.stomp]
protocol = "stomp"
[acceptors.http]
protocol = "http"
[[address-settings]]
match = "#"
dead-letter-address = "DLQ"
[addresses.DLQ.queues.DLQ]
routing-type = "ANYCAST"
[addresses.orders.queues.orders]
routing-type = "ANYCAST"
[links.paris]
url = "amqp://127.0.0.1:1"
enabled = false
retry-interval = "30s"
[links.paris.send.orders]
queue = "orders"
address = "orders"
"""


@pytest.fixture(scope="session")
def chromium() -> Iterator[webdriver.Chrome]:
    """Chromium without a window."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        missing = "no browser: apt-get install chromium chromium-driver"
        if os.environ.get(DEMANDED) == "1":
            pytest.fail(missing)
        pytest.skip(f"{missing}; make browser-tests demands one")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--window-size=1280,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        started = webdriver.Chrome(options, webdriver.ChromeService(driver))
    except WebDriverException as error:
        if os.environ.get(DEMANDED) == "1":
            raise
        pytest.skip(f"the browser does not start: {error.msg}")
    yield started
    started.quit()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A broker that runs."""
    with running(tmp_path, SETTINGS) as process:
        yield process


@pytest.fixture
def operator(chromium: webdriver.Chrome, broker: DaemonProcess) -> Iterator[Operator]:
    """Somebody at the browser, who has not logged in; in the end no page has tried what it may not."""
    chromium.get("about:blank")
    chromium.execute_cdp_cmd("Network.clearBrowserCookies", {})
    chromium.get_log("browser")  # type: ignore[no-untyped-call]
    operator = Operator(chromium, broker)
    yield operator
    operator.check_log()
