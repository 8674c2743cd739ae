"""The console in a real browser: the whole round of dead letters, what clients choose, keys, charts, no JavaScript."""

from __future__ import annotations

import json

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.harness import Operator
from tests.support.stomp_py import DURABLE, Client

#: Runs in a page if it is taken for markup, inside of an attribute or not.
HOSTILE = '"\'><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>{{7+7}}'


def die(operator: Operator, number: int) -> None:
    """Orders that a worker refuses for good, with its reason."""
    client = Client(operator.broker.port, client_id="worker")
    for order in range(1, number + 1):
        client.put("orders", json.dumps({"order": order}), {**DURABLE, "country": "DE" if order % 2 else "FR"})
    client.subscribe("orders", "client-individual")
    for _ in range(number):
        client.nack(client.take(), requeue="false", reason="no such customer")
    client.leave()


def counts(operator: Operator, *names: str) -> list[int]:
    """How many messages are on these queues."""
    return [operator.broker.queue(name)["messages"] for name in names]


def done(operator: Operator) -> int:
    """What the page of a task shows as done."""
    return int(operator.find("progress").get_attribute("value") or 0)


def test_why_orders_died_and_how_they_come_back(operator: Operator) -> None:
    die(operator, 5)
    operator.log_in()
    operator.link("Dead letters")
    operator.reads("rejected", "no such customer", "5 in all")
    operator.link("Look")
    operator.reads("Of one group of dead letters")
    operator.all("td.number a")[0].click()
    operator.reads("Why it died", "A consumer refused it for good", "no such customer", '"order": 1')
    operator.press("Retry")
    operator.reads("1 message went back to where it came from.")
    assert counts(operator, "orders", "DLQ") == [1, 4]

    operator.find("#filter").send_keys("country = 'DE'", Keys.ENTER)
    operator.until(lambda: len(operator.all('[name="id"]')) == 2 or None)
    operator.find("[data-all]").click()
    operator.press("Remove")
    operator.chromium.switch_to.alert.dismiss()
    assert counts(operator, "orders", "DLQ") == [1, 4], "it was not sure"
    operator.press("Remove")
    operator.chromium.switch_to.alert.accept()
    operator.reads("2 messages were removed.")
    operator.link("Dead letters")
    operator.press("Retry all")
    operator.chromium.switch_to.alert.accept()
    operator.reads("2 messages went back to where they came from.", "There are no dead letters.")
    assert counts(operator, "orders", "DLQ") == [3, 0]


def test_text_of_clients_is_shown_and_not_run(operator: Operator) -> None:
    client = Client(operator.broker.port, client_id=HOSTILE)
    client.put(f"/queue/{HOSTILE}", HOSTILE, {**DURABLE, HOSTILE: HOSTILE, "content-type": HOSTILE})
    client.subscribe(f"/queue/{HOSTILE}", "client-individual", {"selector": "a <> '<script>window.hacked=1</script>'"})
    client.subscribe("orders", "client-individual")
    client.put("orders", HOSTILE, DURABLE)
    client.nack(client.take(), requeue="false", reason="<script>window.hacked=1</script>")
    client.put(f"/queue/{HOSTILE}", "with a consumer", {**DURABLE, "a": "1"})
    operator.log_in()
    [dead] = operator.broker.get("queues/DLQ/messages")["messages"]
    pages: list[tuple[str, dict[str, str | int]]] = [
        ("/", {}),
        ("/queues", {"q": HOSTILE}),
        ("/queue", {"name": HOSTILE}),
        ("/queue", {"name": HOSTILE, "filter": HOSTILE}),
        ("/message", {"queue": "DLQ", "id": dead["id"]}),
        ("/dead-letters", {"by": "words"}),
        ("/addresses", {"q": HOSTILE}),
        ("/address", {"name": HOSTILE}),
        ("/connections", {"q": HOSTILE}),
        ("/consumers", {"q": HOSTILE}),
        ("/send", {"to": HOSTILE}),
        ("/explain", {"q": HOSTILE}),
        ("/links", {"q": HOSTILE}),
        ("/link", {"name": "paris"}),
    ]
    for path, given in pages:
        operator.go(path, **given)
        operator.find("h1")
        assert operator.chromium.execute_script("return window.hacked") is None, path
        assert not operator.all("main img"), path
    for path in ("/queues", "/dead-letters", "/connections", "/addresses"):
        operator.go(path)
        operator.reads("window.hacked=1")
    client.drop()


def test_keys_live_search_and_theme(operator: Operator) -> None:
    client = Client(operator.broker.port)
    for number in range(60):
        client.put(f"/queue/work.{number}", "x")
    client.leave()
    operator.log_in()
    operator.link("Queues")
    operator.reads("62 in all")
    ActionChains(operator.chromium).send_keys("/").perform()
    assert operator.chromium.switch_to.active_element.get_attribute("id") == "find"
    operator.chromium.execute_script("window.same = true")
    operator.chromium.switch_to.active_element.send_keys("work.5")
    operator.reads("11 in all")
    assert operator.chromium.execute_script("return window.same"), "the page was loaded anew"
    assert operator.chromium.current_url.endswith("q=work.5")

    operator.go("/queues")
    ActionChains(operator.chromium).send_keys(Keys.TAB).perform()
    assert operator.chromium.switch_to.active_element.text == "Skip to the content"

    def ground() -> str:
        return operator.find("body").value_of_css_property("background-color")

    grounds = [ground()]
    for _ in ("light", "dark"):
        operator.find("#theme").click()
        grounds.append(ground())
    assert grounds[1] != grounds[2]
    operator.go("/addresses")
    assert ground() == grounds[2], "the choice holds on the next page"
    operator.find("#theme").click()


def test_a_link_is_started_and_stopped(operator: Operator) -> None:
    operator.log_in()
    operator.reads("Link paris is stopped")
    operator.link("Links")
    operator.link("paris")
    operator.reads("not started with the broker", "orders")
    operator.press("Start")
    operator.reads("Started: it connects or continues.")
    operator.reads("retrying", "Connection refused", "Connect now")
    operator.press("Stop")
    operator.chromium.switch_to.alert.dismiss()
    assert operator.broker.get("links/paris")["state"] == "retrying", "it was not sure"
    operator.press("Stop")
    operator.chromium.switch_to.alert.accept()
    operator.reads("Stopped: its messages wait on this broker until you start it.")
    assert operator.broker.get("links/paris")["state"] == "stopped"


def test_enter_in_a_field_moves_and_never_retries(operator: Operator) -> None:
    die(operator, 3)
    operator.log_in()
    operator.go("/queue", name="DLQ")
    operator.all('[name="id"]')[0].click()
    operator.find("#to").send_keys("aside", Keys.ENTER)
    operator.reads("1 message was moved.")
    operator.all('[name="id"]')[0].click()
    operator.find("[name=rate]").send_keys("5", Keys.ENTER)
    operator.reads("name the address or queue to move the messages to")
    operator.go("/queue", name="DLQ")
    operator.all("td.number a")[0].click()
    operator.reads("Why it died")
    operator.find("#to").send_keys("aside", Keys.ENTER)
    operator.reads("1 message was moved.")
    operator.all("td.number a")[0].click()
    operator.reads("Why it died")
    operator.find("summary").click()
    operator.find("[name=unset]").send_keys("country", Keys.ENTER)
    operator.reads("name the address or queue to move the messages to")
    assert counts(operator, "orders", "DLQ", "aside") == [0, 1, 2]


def test_a_narrow_window_shows_whole_pages(operator: Operator) -> None:
    name = "n" * 1000
    client = Client(operator.broker.port)
    client.put(f"/queue/{name}", "x", DURABLE)
    client.leave()
    operator.log_in()
    before = operator.chromium.get_window_size()
    operator.chromium.set_window_size(420, 900)
    try:
        pages: list[tuple[str, dict[str, str | int]]] = [("/queue", {"name": name}), ("/address", {"name": name})]
        pages += [("/links", {}), ("/link", {"name": "paris"})]
        for path, given in [*pages, ("/dead-letters", {}), ("/diverts", {}), ("/connections", {}), ("/consumers", {})]:
            operator.go(path, **given)
            widths = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
            needed, there = operator.chromium.execute_script(widths)
            assert needed <= there, path
    finally:
        operator.chromium.set_window_size(before["width"], before["height"])


def test_charts_go_on_and_a_broker_that_comes_back_asks_for_a_login(operator: Operator) -> None:
    operator.log_in()
    operator.until(lambda: len(operator.all("canvas")) == 6 or None)
    client = Client(operator.broker.port)
    client.put("orders", "x" * 1000, DURABLE)
    client.leave()
    operator.reads("waiting 1", "/s")
    operator.go("/queues")
    operator.chromium.delete_all_cookies()
    operator.reads("Log in")  # the page has asked for news
    operator.broker.stop()
    operator.broker.start()
    operator.go("/queues")
    operator.reads("Log in")
    operator.log_in()
    operator.reads("waiting 1")


def test_a_link_on_another_site_leads_to_its_page(operator: Operator) -> None:
    operator.log_in()
    port = operator.broker.ports["http"]
    operator.chromium.get(f"http://localhost:{port}/static/icon.svg")  # another site than 127.0.0.1
    operator.chromium.execute_script(f"location.href = 'http://127.0.0.1:{port}/queue?name=orders'")
    operator.reads("anycast on address orders")


def test_without_javascript(operator: Operator) -> None:
    die(operator, 2)
    operator.chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        operator.log_in()
        operator.link("Dead letters")
        operator.press("Retry all")
        operator.reads("2 messages went back to where they came from.")
        operator.link("Queues")
        operator.find("#find").send_keys("DL", Keys.ENTER)
        operator.reads("1 in all")
    finally:
        operator.chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert counts(operator, "orders", "DLQ") == [2, 0]


def test_a_task_goes_on_after_a_crash(operator: Operator) -> None:
    """Its rate leaves it 50 s, as a busy machine may need some for what happens meanwhile."""
    client = Client(operator.broker.port)
    for _ in range(200):
        client.put("orders", "x", DURABLE)
    client.leave()
    operator.log_in()
    operator.go("/queue", name="orders")
    operator.find("[name=all]").click()
    operator.find("#to").send_keys("aside")
    operator.find("[name=rate]").send_keys("4")
    operator.press("Move")
    operator.chromium.switch_to.alert.accept()
    operator.reads("running")
    page = operator.chromium.current_url.partition("/task")[2]
    operator.until(lambda: done(operator) >= 4 or None)
    operator.broker.kill()
    operator.broker.start()
    operator.log_in()
    operator.link("Tasks")
    operator.reads("move to aside", "running")
    operator.go(f"/task{page}")
    operator.press("Pause")
    operator.reads("paused")
    before = done(operator)
    operator.press("Resume")
    operator.until(lambda: done(operator) > before or None)
    operator.press("Cancel")
    operator.chromium.switch_to.alert.accept()
    operator.reads("cancelled")
    assert sum(counts(operator, "orders", "aside")) == 200


def test_an_edit_sends_the_fields_that_are_seen(operator: Operator) -> None:
    die(operator, 1)
    operator.log_in()
    [dead] = operator.broker.get("queues/DLQ/messages")["messages"]
    operator.go("/message", queue="DLQ", id=dead["id"])
    operator.find("details.card summary").click()
    body = operator.find('[name="body"]')
    assert body.get_attribute("value") == '{"order": 1}'
    body.clear()
    body.send_keys('{"order": 2}')
    operator.press("Edit and retry")
    operator.reads("1 message went back to where it came from.")
    [sent] = operator.broker.get("queues/orders/messages")["messages"]
    assert sent["body"]["data"] == '{"order": 2}'


def test_a_page_says_since_when_there_is_no_answer(operator: Operator) -> None:
    """A dead broker must not look ready on a page that stays open."""
    operator.log_in()
    for path in ("/queues", "/users"):  # the first refreshes itself
        operator.go(path)
        assert operator.find("#state").text == "Ready"
        operator.broker.kill()
        operator.reads("No answer since ", " UTC")
        assert operator.all("#state.bad")
        assert operator.chromium.title.startswith("No answer - ")
        operator.broker.start()
        operator.log_in()
    operator.go("/users")
    operator.chromium.delete_all_cookies()
    operator.reads("Logged out")


def test_a_mass_action_asks_with_count_and_names(operator: Operator) -> None:
    die(operator, 3)
    operator.log_in()

    def asked(button: str, *, accept: bool = False) -> str:
        operator.press(button)
        alert = operator.chromium.switch_to.alert
        text: str = alert.text
        (alert.accept if accept else alert.dismiss)()
        return text

    operator.go("/queue", name="DLQ")
    operator.find('[name="all"]').click()
    operator.find("#to").send_keys("orders")
    assert asked("Move") == "Move all 3 messages of queue DLQ to orders?"
    assert asked("Retry") == "Retry all 3 messages of queue DLQ, back to where they came from?"
    assert asked("Remove") == "Remove all 3 messages of queue DLQ for good?"
    operator.find("#to").send_keys(Keys.ENTER)
    operator.chromium.switch_to.alert.dismiss()
    assert counts(operator, "DLQ") == [3], "it was not sure"
    operator.go("/queue", name="DLQ", filter="country = 'DE'")
    operator.find('[name="all"]').click()
    told = "Remove all messages that match country = 'DE' of queue DLQ, which has 3 messages for good?"
    assert asked("Remove") == told
    operator.go("/queue", name="DLQ")
    operator.all('[name="id"]')[0].click()
    assert asked("Remove") == "Remove 1 message of queue DLQ for good?"
    operator.press("Retry")  # one message can be brought back: no question
    operator.reads("1 message went back to where it came from.")
    operator.find("[data-all]").click()
    operator.find("#to").send_keys("orders")
    assert asked("Move", accept=True) == "Move 2 messages of queue DLQ to orders?"
    operator.reads("2 messages")
    assert counts(operator, "orders", "DLQ") == [3, 0]
