"""An operator at a browser: goes to pages, reads, clicks, types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar
from urllib.parse import urlencode

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.daemon import DaemonProcess
from tests.support.process import PATIENCE_S

Result = TypeVar("Result")


class Operator:
    """Somebody at a browser, in front of one broker."""

    def __init__(self, chromium: webdriver.Chrome, broker: DaemonProcess) -> None:
        self.chromium = chromium
        self.broker = broker

    def go(self, path: str, **given: str | int) -> None:
        """Go to a page."""
        query = f"?{urlencode(given)}" if given else ""
        self.chromium.get(f"http://127.0.0.1:{self.broker.ports['http']}{path}{query}")

    def log_in(self) -> None:
        """Log in as the broker's owner, with the form."""
        token = (self.broker.data / "management.token").read_text().strip()
        self.go("/login")
        self.find("[name=password]").send_keys(token, Keys.ENTER)
        self.until(lambda: "/login" not in self.chromium.current_url)

    def find(self, selector: str) -> WebElement:
        """The first thing that a CSS selector fits, once it is there."""
        return self.until(lambda: next(iter(self.all(selector)), None))

    def all(self, selector: str) -> list[WebElement]:
        """All that a CSS selector fits now."""
        return self.chromium.find_elements(By.CSS_SELECTOR, selector)

    def link(self, text: str) -> None:
        """Click on a link with this text."""
        self.until(lambda: _clicked(self.chromium.find_elements(By.LINK_TEXT, text)))

    def press(self, text: str) -> None:
        """Press a button with this text."""
        self.until(lambda: _clicked(each for each in self.all("main button") if each.text == text))

    @property
    def text(self) -> str:
        """What can be read on the page."""
        return self.find("body").text

    def reads(self, *texts: str) -> None:
        """Wait until all of these can be read."""
        self.until(lambda: all(text in self.text for text in texts) or None, f"{texts} on the page")

    def until(self, look: Callable[[], Result | None], what: str = "") -> Result:
        """Wait until there is something."""
        found = WebDriverWait(self.chromium, PATIENCE_S, 0.05).until(lambda _: _unless_replaced(look), what)
        assert found is not None
        return found

    def check_log(self) -> None:
        """Nothing was refused to a page by the Content-Security-Policy, and no script failed.

        The log also has answers that are refusals, and requests that find no broker: tests see to those.
        """
        entries = self.chromium.get_log("browser")  # type: ignore[no-untyped-call]
        told = [each["message"] for each in entries]
        wrong = [message for message in told if "Content Security Policy" in message or "Uncaught" in message]
        assert not wrong, wrong


def _clicked(found: Iterable[WebElement]) -> bool | None:
    """Click on the first of them; None if there is none."""
    for each in found:
        each.click()
        return True
    return None


def _unless_replaced(look: Callable[[], Result | None]) -> Result | None:
    """What a look finds; None if the page was replaced meanwhile, which Chromium tells in two ways."""
    try:
        return look()
    except StaleElementReferenceException:
        return None
    except WebDriverException as error:
        if "does not belong to the document" not in (error.msg or ""):
            raise
        return None
