"""Coming in and staying: logins, sessions and their ends, what other sites cannot do, what a browser is told."""

from __future__ import annotations

import re
from time import thread_time

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from broker.console.console import POLICY, Console
from broker.console.sessions import IDLE_SECONDS_MAX, SESSION_SECONDS_MAX, USER_SESSIONS_MAX, Session, Sessions
from broker.engine.model.access import UNRESTRICTED
from broker.management.callers import CALLER, Caller
from broker.security.login_policy import Policy
from broker.sessions.login import Peer
from tests.broker.console.harness import Browser
from tests.broker.management.harness import TOKEN, TestBroker, managing
from tests.support.sim_gate import cheap_user


async def test_the_login_is_a_form_and_leads_back_to_the_page_that_was_asked_for(
    broker: TestBroker, browser: Browser
) -> None:
    broker.queue("orders")
    page = await browser.get("/queue?name=orders")
    assert (page.status, page.to) == (303, "/login?next=%2Fqueue%3Fname%3Dorders")
    page = await browser.follow(page)
    page = await browser.send(page, "/login", user="", password="a-token-for-tests\n")
    assert (page.status, page.to) == (303, "/queue?name=orders")
    assert "orders" in (await browser.follow(page)).text


async def test_a_user_logs_in_with_the_password_of_every_protocol(broker: TestBroker, browser: Browser) -> None:
    page = await browser.log_in("alice", "wrong")
    assert page.status == 403
    assert "The user and password, or the token, are wrong" in page.seen
    assert (await browser.log_in("alice", "s3cret")).status == 303
    assert "alice" in (await browser.get("/queues")).seen
    told = [code for code, _ in broker.reports]
    assert [code for code in told if code.startswith(("login", "console"))] == [
        "login.refused",
        "login.accepted",
        "console.login",
    ]


@pytest.mark.parametrize(("user", "password"), [("", "another-token"), ("", ""), ("nobody", "x"), ("alice", "")])
async def test_nobody_else_comes_in(browser: Browser, user: str, password: str) -> None:
    assert (await browser.log_in(user, password)).status == 403
    assert (await browser.get("/queues")).to.startswith("/login")


async def test_the_cookie_is_the_browsers_alone_and_a_form_needs_its_own(browser: Browser) -> None:
    first = await browser.get("/login")
    refused = await Browser(browser.port).post("/login", {**first.forms("/login")[0], "password": "a-token-for-tests"})
    assert refused.status == 403
    page = await browser.send(first, "/login", user="", password="a-token-for-tests")
    cookie = page.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie, "this is not TLS"


async def test_the_cookies_of_others_cost_no_more_than_their_bytes(owner: Browser) -> None:
    await owner.get("/queues")
    strange = {"a": '"' + '\\"' * 15_000 + '"'}
    for browser, expected in ((Browser(owner.port, strange), 303), (Browser(owner.port, strange | owner.cookies), 200)):
        begun = thread_time()
        assert (await browser.get("/queues")).status == expected
        assert thread_time() - begun < 0.5, "it was 2 s, in which the event loop did nothing else"


async def test_a_form_is_only_done_with_the_token_of_its_session(broker: TestBroker, owner: Browser) -> None:
    broker.queue("orders")
    form: dict[str, str | list[str]] = dict((await owner.get("/queue?name=orders")).forms("/queue/pause")[0])
    assert (await owner.post("/queue/pause", form | {"csrf": "x"})).status == 403
    assert (await owner.post("/queue/pause", form | {"csrf": ""})).status == 403
    assert (await owner.post("/queue/pause", form, {"origin": "http://evil.example"})).status == 403
    assert (await owner.post("/queue/pause", form, {"content-type": "text/plain"})).status == 415
    assert not broker.engine.queue("orders").paused
    other = Browser(owner.port)
    await other.log_in()
    foreign = (await other.get("/queue?name=orders")).forms("/queue/pause")[0]
    assert (await owner.post("/queue/pause", form | {"csrf": foreign["csrf"]})).status == 403
    assert (await owner.post("/queue/pause", form)).status == 303
    assert broker.engine.queue("orders").paused


async def test_a_browser_may_load_what_the_console_serves_and_nothing_else(owner: Browser) -> None:
    for path in ("/", "/queues", "/login", "/nowhere"):
        page = await owner.get(path)
        assert page.headers["content-security-policy"] == POLICY
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["cache-control"] == "no-store"
        assert " style=" not in page.text
        assert "<style" not in page.text
        assert "<script>" not in page.text
        assert " onclick" not in page.text
    script = next(part for part in (await owner.get("/")).text.split('"') if part.startswith("/static/console.js"))
    answer = await owner.get(script)
    assert answer.status == 200
    assert "immutable" in answer.headers["cache-control"]
    assert (await owner.get("/static/console.py")).status == 404
    assert (await owner.get("/static/..%2Fconsole.py")).status == 404


async def test_a_login_leads_to_no_other_site(browser: Browser) -> None:
    for next in ("//evil.example", "https://evil.example", "/\\evil.example", "/a\nb"):
        browser.cookies.clear()
        form = (await browser.get("/login")).forms("/login")[0]
        page = await browser.post("/login", {**form, "next": next, "user": "", "password": "a-token-for-tests"})
        assert page.to == "/"


async def test_a_logged_out_user_is_out(owner: Browser) -> None:
    before = dict(owner.cookies)
    page = await owner.send(await owner.get("/"), "/logout")
    assert page.to == "/login"
    owner.cookies = before
    assert (await owner.get("/")).to == "/login"


async def test_a_session_ends_when_users_change(broker: TestBroker, browser: Browser) -> None:
    managing(broker, "#")
    await browser.log_in("alice", "s3cret")
    assert (await browser.get("/")).status == 200
    broker.gate.change(Policy({"alice": cheap_user("s3cret", "team")}))
    assert (await browser.get("/")).to == "/login"
    assert (await browser.get("/live", console_refresh="1")).headers["hx-redirect"] == "/login"
    assert broker.reports[-1] == (
        "console.logout",
        {"remote": broker.reports[-1][1]["remote"], "reason": "withdrawn", "user": "alice"},
    )


async def test_pages_asked_for_by_a_page_do_not_keep_a_session(
    console: Console, owner: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    [session] = console.sessions._by_id.values()
    session.used -= 100
    before = session.used
    await owner.get("/live", console_refresh="1")
    assert session.used == before
    await owner.get("/queues")
    assert session.used > before


async def test_behind_a_proxy_with_tls_the_cookie_is_for_tls_only(browser: Browser) -> None:
    form = (await browser.get("/login")).forms("/login")[0]
    secure = {"origin": "https://broker", "host": "broker"}
    page = await browser.post("/login", {**form, "user": "", "password": "a-token-for-tests"}, secure)
    assert "; Secure" in page.headers["set-cookie"]


async def test_over_tls_the_cookie_is_bound_to_its_host(console: Console) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await console({**scope, "state": {CALLER: Caller(Peer("peer"))}}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://broker") as client:
        [once] = re.findall(r'name="once" value="([^"]+)"', (await client.get("/login")).text)
        answer = await client.post("/login", data={"user": "", "password": TOKEN, "once": once})
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-bartleby-")
        assert "; Secure" in cookie
        assert (await client.get("/queues")).status_code == 200
        [csrf] = set(re.findall(r'name="csrf" value="([^"]+)"', (await client.get("/queues")).text))
        await client.post("/logout", data={"csrf": csrf})
        assert not [name for name in client.cookies if not name.endswith("-login")]


async def test_one_user_drives_out_nobody_else(console: Console, owner: Browser) -> None:
    browsers = [Browser(owner.port) for _ in range(USER_SESSIONS_MAX + 1)]
    for each in browsers:
        assert (await each.log_in("alice", "s3cret")).status == 303
    assert (await browsers[0].get("/queues")).to.startswith("/login")
    for each in (*browsers[1:], owner):
        assert (await each.get("/queues")).status == 200
    assert len(console.sessions) == USER_SESSIONS_MAX + 1


class _Clock:
    """Seconds that a test lets go by."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def test_sessions_end_when_idle_when_old_and_when_there_are_too_many(broker: TestBroker) -> None:
    clock, told = _Clock(), list[str]()

    def report(code: str, /, **fields: str | int) -> None:
        told.append(str(fields.get("reason", code)))

    sessions = Sessions(
        lambda: broker.gate,
        report,
        now=clock,
        wall_ms=lambda: broker.now,
        most=2,
    )

    def begin() -> Session:
        return sessions.begin(Peer("127.0.0.1:1", "127.0.0.1"), UNRESTRICTED)

    idle, used = begin(), begin()
    clock.now += IDLE_SECONDS_MAX - 1
    assert sessions.find(used.id) is used
    clock.now += 1
    assert sessions.find(idle.id) is None
    old = begin()
    clock.now += 1
    begin()
    assert sessions.find(used.id) is None, "the one that was idle longest made room"
    while clock.now < old.begun + SESSION_SECONDS_MAX - 1:
        clock.now = min(clock.now + IDLE_SECONDS_MAX - 2, old.begun + SESSION_SECONDS_MAX - 1)
        assert sessions.find(old.id) is old
    clock.now += 1
    assert sessions.find(old.id) is None
    assert sorted(set(told)) == ["console.login", "expired", "idle", "replaced"]
    assert len({idle.id, used.id, old.id, idle.csrf, used.csrf, old.csrf}) == 6
