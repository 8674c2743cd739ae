"""A broker with its console, and a browser without a screen: it keeps cookies, reads forms, and sends them."""

from __future__ import annotations

import asyncio
import http.client
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

from broker.console.console import Console
from broker.management.limits import Limits
from tests.broker.management.harness import TOKEN, TestBroker, listening

FORM = "application/x-www-form-urlencoded"

#: Whatever a test sends beside the fields of a form.
Given = dict[str, str | list[str]]


@dataclass(frozen=True)
class Page:
    """An answer."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def text(self) -> str:
        """The page as it was sent."""
        return self.content.decode()

    @property
    def to(self) -> str:
        """Where it sends the browser."""
        return self.headers.get("location", "")

    @property
    def seen(self) -> str:
        """What can be read on it, without markup."""
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", self.text)))

    def forms(self, action: str) -> list[dict[str, str]]:
        """The hidden fields of each form with this action."""
        reader = _Forms(action)
        reader.feed(self.text)
        return reader.found


class _Forms(HTMLParser):
    """Finds forms, and what is hidden in them."""

    def __init__(self, action: str) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self._action = action
        self._within = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See HTMLParser."""
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._within = given.get("action") == self._action
            if self._within:
                self.found.append({})
        elif tag == "input" and self._within and given.get("type") == "hidden":
            self.found[-1][given["name"]] = given["value"]

    def handle_endtag(self, tag: str) -> None:
        """See HTMLParser."""
        self._within = self._within and tag != "form"


@dataclass
class Browser:
    """One browser; `headers` go with each request."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, **headers: str) -> Page:
        """Ask for a page."""
        return await self._ask("GET", path, None, {name.replace("_", "-"): headers[name] for name in headers})

    async def post(self, path: str, given: Given, headers: dict[str, str] | None = None) -> Page:
        """Send fields."""
        body = urlencode(given, doseq=True).encode()
        return await self._ask("POST", path, body, {"content-type": FORM} | (headers or {}))

    async def send(self, page: Page, action: str, **given: str | list[str]) -> Page:
        """Send the first form of a page with this action, with what was filled in."""
        found = page.forms(action)
        assert found, f"there is no form {action} on the page"
        return await self.post(action, {**found[0], **given})

    async def follow(self, page: Page) -> Page:
        """Go where a page sends the browser."""
        assert page.status == 303, page.text
        return await self.get(page.to)

    async def log_in(self, user: str = "", password: str = TOKEN) -> Page:
        """Log in; without a user as the owner."""
        return await self.send(await self.get("/login"), "/login", user=user, password=password)

    async def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Page:
        sent = {**self.headers, **headers}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return await asyncio.to_thread(self._call, method, path, body, sent)

    def _call(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Page:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            for set_cookie in answer.headers.get_all("set-cookie", []):
                for name, morsel in SimpleCookie(set_cookie).items():
                    self.cookies[name] = morsel.value
            return Page(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()


@asynccontextmanager
async def consoled(
    directory: Path, limits: Limits | None = None, reports: Path | None = None
) -> AsyncIterator[tuple[TestBroker, Console, int]]:
    """A broker with its console on a free port."""
    broker = TestBroker(directory)
    console = Console(broker, TOKEN, reports=reports, limits=limits)
    try:
        async with listening(broker, limits=limits, console=console) as (_, client):
            yield broker, console, client.port
    finally:
        broker.disk_works = True
        await broker.settled()
        broker.close()
