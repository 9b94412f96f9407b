"""Airflow's UI as a person with a browser sees it: log in, fill in a form, look at runs and tasks.

Everything is looked for by what a person reads or by Airflow's own test ids, and waited for with a deadline.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar
from urllib.parse import quote

from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from ckpt_stream.protocol.deadline import Deadline

T = TypeVar("T")

SIZE = (1400, 900)
# A page comes within a second or two on an idle machine.
PAGE_SECONDS = 60.0
# After that long a person loads a page again: Airflow's server now and then leaves one request without an answer.
PATIENCE_SECONDS = 30.0
# Each look costs the browser time that Spark could use.
POLL_SECONDS = 0.2
PRESS_SECONDS = 10.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless=new",
    "--lang=en-US",
    "--no-first-run",
    # The server is on this machine; no other one is to be called.
    "--no-proxy-server",
    "--disable-background-networking",
    # In a container /dev/shm is often too small for a browser.
    "--disable-dev-shm-usage",
    "--disable-gpu",
)
#: The page is being redrawn: look again.
REDRAWN = (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)


@contextmanager
def open_browser(url: str) -> Iterator[AirflowUi]:
    """A headless Chromium that is gone afterwards."""
    options = ChromeOptions()
    options.binary_location = _program(*BROWSERS)
    driver = _program("chromedriver")
    # Chromium refuses to put root into a sandbox.
    for option in (*OPTIONS, *(["--no-sandbox"] if os.geteuid() == 0 else [])):
        options.add_argument(option)
    chrome = Chrome(options=options, service=Service(driver))
    try:
        width, height = SIZE
        chrome.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        yield AirflowUi(chrome, url.rstrip("/"))
    finally:
        chrome.quit()


def _program(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    raise FileNotFoundError(f"{names[0]} is not on the PATH: apt-get install chromium chromium-driver")


class Page:
    """What can be done with any page."""

    def __init__(self, chrome: Chrome) -> None:
        self.chrome = chrome

    def wait_for(self, fact: Callable[[], T], what: str, seconds: float = PAGE_SECONDS) -> T:
        """The first true value of `fact`; else an assertion that tells what the page shows instead."""

        deadline = Deadline.after(seconds)
        while True:
            with suppress(*REDRAWN):
                if value := fact():
                    return value
            if deadline.passed:
                shown = f"{self.chrome.current_url} shows:\n{self.text()}"
                raise AssertionError(f"timed out after {seconds:.0f} s of waiting for {what}; {shown}")
            time.sleep(POLL_SECONDS)

    def point_nowhere(self) -> None:
        """Move the pointer away from what it was last used on, which may show a hint."""
        pointer = ActionBuilder(self.chrome)
        pointer.pointer_action.move_to_location(0, 0)  # type: ignore[no-untyped-call]
        pointer.perform()

    def text(self) -> str:
        """All that can be read on the page."""
        return str(self.chrome.find_element(By.TAG_NAME, "body").text)

    def find(self, css: str, text: str = "") -> WebElement:
        """The first visible element of now, with this text if one is wanted."""
        for element in self.chrome.find_elements(By.CSS_SELECTOR, css):
            if element.is_displayed() and (not text or element.text.strip() == text):
                return element
        raise NoSuchElementException(f"{css} {text}".rstrip())

    def see(self, css: str, text: str = "") -> WebElement:
        """The same, as soon as it is there."""
        return self.wait_for(lambda: self.find(css, text), f"{css} {text}".rstrip())

    def click(self, css: str, text: str = "") -> None:
        """Click on what is there and has stopped moving: a click lands where a thing was when it was looked at."""
        places: list[dict[str, float]] = [{}]

        def clicked() -> bool:
            element = self.find(css, text)
            self.chrome.execute_script("arguments[0].scrollIntoView({block: 'nearest', behavior: 'instant'})", element)
            places.append(self.chrome.execute_script("return arguments[0].getBoundingClientRect().toJSON()", element))
            if places[-1] != places[-2]:
                return False
            element.click()
            return True

        self.wait_for(clicked, f"a click on {css} {text}".rstrip())


class AirflowUi(Page):
    """A browser that looks at one Airflow."""

    def __init__(self, chrome: Chrome, url: str) -> None:
        super().__init__(chrome)
        self.url = url

    def log_in(self, username: str, password: str) -> None:
        self._open(self.url, "input[name=username]")
        self.see("input[name=username]").send_keys(username)
        self.see("input[name=password]").send_keys(password)
        self.click("button[type=submit]")
        self.see("nav, [aria-label=Admin]")

    # --- pages -----------------------------------------------------------------------------------------------------

    def open_dags(self, tag: str) -> None:
        """The list of the DAGs with a tag."""
        self.chrome.get(f"{self.url}/dags?tags={quote(tag)}")
        self.wait_for(lambda: re.search(r"\d+ Dags?\b", self.text()), "the list of DAGs")

    def open_trigger_form(self, dag_id: str) -> TriggerForm:
        self._open(f"{self.url}/dags/{dag_id}", "[data-testid=trigger-dag-button]")
        self.click("[data-testid=trigger-dag-button]")
        form = TriggerForm(self.chrome, dag_id)
        form.wait_until_open()
        return form

    def open_run(self, dag_id: str, run_id: str) -> None:
        self._open(self._run_url(dag_id, run_id), "[data-testid=header-card] h2", run_id)

    def open_task(self, dag_id: str, run_id: str, task_id: str, tab: str = "") -> None:
        """A task of a run; `tab` is the last part of the tab's address, such as `details` or `xcom`."""
        url = f"{self._run_url(dag_id, run_id)}/tasks/{task_id}{f'/{tab}' if tab else ''}"
        self._open(url, "[data-testid=header-card] h2", task_id)

    def _open(self, url: str, css: str, text: str = "") -> None:
        """Load a page until it shows what it is known by; a second time if that does not come."""
        self.chrome.get(url)
        with suppress(AssertionError):
            self.wait_for(lambda: self.find(css, text), "the page", PATIENCE_SECONDS)
            return
        self.chrome.get(url)
        self.see(css, text)

    def _run_url(self, dag_id: str, run_id: str) -> str:
        return f"{self.url}/dags/{dag_id}/runs/{quote(run_id)}"

    # --- what they show --------------------------------------------------------------------------------------------

    def state(self) -> str:
        """The state of the run or task that is open, as its badge has it."""
        return self.find("[data-testid=header-card] [data-testid=state-badge]").text.strip().lower()

    def wait_for_state(self, *states: str, seconds: float = PAGE_SECONDS) -> str:
        """Watch the open page, which renews itself, until it shows one of the states; load it again now and then."""
        patience = Deadline.after(PATIENCE_SECONDS)

        def shown() -> str:
            nonlocal patience
            if patience.passed:
                self.chrome.refresh()
                patience = Deadline.after(PATIENCE_SECONDS)
            state = self.state()
            return state if state in states else ""

        return self.wait_for(shown, f"a badge that says {' or '.join(states)}", seconds)

    def extra_link(self, name: str) -> str:
        """Where an extra link leads, on a task's `details` tab."""
        return str(self.see("a[target=_blank]", name).get_attribute("href"))

    def xcom(self, key: str) -> str:
        """What can be seen of an XCom's value on a task's `xcom` tab, unfolded, as the text of its first lines."""

        def lines() -> str:
            for row in self.chrome.find_elements(By.CSS_SELECTOR, "tr"):
                keys = row.find_elements(By.CSS_SELECTOR, "[data-testid=table-cell-key]")
                if keys and keys[0].text == key:
                    shown = row.find_elements(By.CSS_SELECTOR, ".view-line")
                    # Two lines are the brackets of a value that is still folded.
                    return "\n".join(_plain(line.text) for line in _from_top(shown)) if len(shown) > 2 else ""
            return ""

        self.click("[data-testid=expand-all-button]")
        return self.wait_for(lines, f"the unfolded XCom {key}")


class TriggerForm(Page):
    """The dialog that starts a run."""

    #: The page below the dialog may have buttons of the same name.
    DIALOG = "[role=dialog][data-state=open]"

    def __init__(self, chrome: Chrome, dag_id: str) -> None:
        super().__init__(chrome)
        self.dag_id = dag_id

    def wait_until_open(self) -> None:
        self.see(f"{self.DIALOG} h2", f"Trigger Dag - {self.dag_id}")
        self.see(f"{self.DIALOG} [data-testid=config-form]")

    def open_section(self, name: str) -> None:
        """Unfold a section, unless it is. Airflow draws the form again when the params have come, all folded."""

        def is_open() -> bool:
            head = self.find(f"{self.DIALOG} button[data-part=item-trigger]", name)
            if head.get_attribute("aria-expanded") != "true":
                head.click()
                return False
            content = self.find(f"[id='{head.get_attribute('aria-controls')}']")
            # Its height grows while it opens; what is below moves.
            return not self.chrome.execute_script("return arguments[0].getAnimations({subtree: true}).length", content)

        self.wait_for(is_open, f"section {name} to open")

    def explanations(self) -> dict[str, str]:
        """The fields that can be seen: their titles and what is said about each."""
        found = {}
        for field in self.chrome.find_elements(By.CSS_SELECTOR, f"{self.DIALOG} [data-scope=field][data-part=root]"):
            texts = field.find_elements(By.CSS_SELECTOR, "[data-part=helper-text]")
            if field.is_displayed() and texts:
                title = field.find_element(By.CSS_SELECTOR, "[data-part=label]").text
                found[title.removesuffix("*").strip()] = texts[0].text
        return found

    def fill_in(self, name: str, value: str | int) -> None:
        """Type a value into a param's field; its section must be open."""
        self._type(f"element_{name}", str(value))

    def name_the_run(self, run_id: str) -> None:
        self.open_section("Advanced Options")
        self._type("dagRunId", run_id)

    def _type(self, name: str, value: str) -> None:
        css = f"{self.DIALOG} input[name={name}]"

        def typed() -> bool:
            field = self.find(css)
            field.send_keys(Keys.CONTROL, "a")
            field.send_keys(value, Keys.TAB)
            return self.find(css).get_attribute("value") == value

        self.wait_for(typed, f"{name} to be {value}")

    def switch_on(self, name: str) -> None:
        css = f"{self.DIALOG} [id='switch:element_{name}']"
        if self.see(css).get_attribute("data-state") != "checked":
            self.click(css)
        self.see(f"{css}[data-state=checked]")

    def can_be_sent(self) -> bool:
        """Whether the button can be pressed: it cannot while a field is in error."""
        return self.see(f"{self.DIALOG} button", "Trigger").is_enabled()

    def submit(self) -> None:
        """Press the button, again if nothing comes of it: the form may be drawn anew under the pointer.

        Name the run before, then it cannot be started twice. The dialog stays until the page below has been renewed.
        """
        button = f"{self.DIALOG} button:not([disabled])"

        def pressed() -> bool:
            self.click(button, "Trigger")
            with suppress(AssertionError):
                return self.wait_for(lambda: not self._has(button, "Trigger"), "the button to go", PRESS_SECONDS)
            return False

        self.wait_for(pressed, "the form to be sent")

    def _has(self, css: str, text: str) -> bool:
        try:
            return bool(self.find(css, text))
        except NoSuchElementException:
            return False


def _from_top(lines: list[WebElement]) -> list[WebElement]:
    """The editor draws its lines in any order."""
    return sorted(lines, key=lambda line: int(line.location["y"]))


def _plain(line: str) -> str:
    """The editor's spaces are such that a line cannot break at them."""
    return line.replace("\N{NO-BREAK SPACE}", " ").replace("\N{MIDDLE DOT}", " ")
