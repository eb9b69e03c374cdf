"""A real, headless browser for tests, over the DevTools protocol."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import websocket

from tests.live import Gunicorn
from tests.waiting import SECONDS

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0", "about:blank"),
)

# Resolves with the number of elements when there are any.
SHOWN = """new Promise(done => {{
  const look = () => document.querySelector({0}) ? done(document.querySelectorAll({0}).length) : setTimeout(look, 20);
  look();
}})"""


class Tab:
    """A tab of a browser, and its DevTools events."""

    def __init__(self, address: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._socket = websocket.create_connection(address, timeout=SECONDS, suppress_origin=True)
        self._session: dict[str, str] = {}
        self._calls = 0
        self._target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Call a method and wait for its result; events that arrive before it are stored."""
        self._calls += 1
        self._socket.send(json.dumps({"id": self._calls, "method": method, "params": params, **self._session}))
        while (message := json.loads(self._socket.recv())).get("id") != self._calls:
            self.events.append(message)
        assert "error" not in message, message
        return message["result"]

    def open(self, url: str) -> None:
        """Load a page."""
        self.load(lambda: self.call("Page.navigate", url=url))

    def load(self, act: Callable[[], object]) -> None:
        """Do what loads a page, and wait until it is loaded."""
        begin = len(self.events)
        act()
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events[begin:]):
            self.events.append(json.loads(self._socket.recv()))

    def shown(self, selector: str) -> int:
        """Wait until the page has elements for the CSS selector; return how many."""
        return int(self.run(SHOWN.format(json.dumps(selector))))

    def click(self, selector: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def write(self, selector: str, text: str) -> None:
        """Type into a field, in place of its value."""
        self.run(f"document.querySelector({json.dumps(selector)}).select()")
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int) -> None:
        """Press a key, by its name and its virtual key code."""
        text = {"text": "\r"} if key == "Enter" else {}
        for type, more in (("keyDown", text), ("keyUp", {})):
            self.call("Input.dispatchKeyEvent", type=type, key=key, code=key, windowsVirtualKeyCode=code, **more)

    def answer(self, accept: bool) -> None:
        """Accept or dismiss the next question of the page."""
        while not self.parameters_of("Page.javascriptDialogOpening"):
            self.events.append(json.loads(self._socket.recv()))
        self.events = [each for each in self.events if each.get("method") != "Page.javascriptDialogOpening"]
        self.call("Page.handleJavaScriptDialog", accept=accept)

    def run(self, script: str) -> Any:
        return self.call("Runtime.evaluate", expression=script, awaitPromise=True)["result"].get("value")

    def parameters_of(self, *methods: str) -> list[Any]:
        """The parameters of the events of these methods."""
        return [event["params"] for event in self.events if event.get("method") in methods]

    def close(self) -> None:
        self._session = {}
        self.call("Target.closeTarget", targetId=self._target)
        self._socket.close()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a new browser."""
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("there is no chromium")
        pytest.skip("there is no chromium")
    command = [CHROMIUM, *OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        yield next(line.split()[-1] for line in running.stderr if line.startswith("DevTools listening on"))
        running.terminate()
        running.stderr.read()


@pytest.fixture
def tab(browser: str) -> Iterator[Tab]:
    """A new tab."""
    opened = Tab(browser)
    yield opened
    opened.close()


PHONE, DESKTOP = 360, 1200  # widths of a window

# Resolves with true when an expression is true, or too late with what the page shows.
TRUE = """new Promise(done => {{ const end = Date.now() + {1}, look = () =>
  ({0}) ? done(true) : Date.now() > end ? done(document.body.innerText) : setTimeout(look, 20); look(); }})"""


class Page:
    """The page /browse of a server in a tab."""

    def __init__(self, tab: Tab, server: Gunicorn) -> None:
        self.tab, self.server = tab, server
        self.wide(DESKTOP)

    def wide(self, width: int, scheme: str = "light") -> None:
        self.tab.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, view: str, title: str) -> None:
        """Load the page anew with a view, and wait for its heading."""
        self.tab.open("about:blank")
        self.tab.open(f"{self.server.base}/browse#/{view}")
        self.see("h1", title)

    def until(self, condition: str) -> None:
        assert self.tab.run(TRUE.format(condition, int(1000 * SECONDS))) is True, condition

    def see(self, selector: str, *texts: str) -> None:
        """Wait until the elements for a selector contain these texts."""
        for text in texts:
            found = f"[...document.querySelectorAll({json.dumps(selector)})].some(each => each.textContent.includes"
            self.until(f"{found}({json.dumps(text)}))")

    def press(self, label: str) -> None:
        """Click the button or link with this name."""
        named = f"[...document.querySelectorAll('button, a')].find(each => each.innerText === {json.dumps(label)})"
        self.until(named)
        self.tab.run(f"(e => {{ e.focus(); e.click(); }})({named})")

    def fill(self, name: str, value: str) -> None:
        """Write into the field with this label, as a user would, or choose in it."""
        element = f"document.querySelector('[name={name}]')"
        self.until(element)
        if self.tab.run(f"{element}.localName") == "select":
            self.tab.run(f"{element}.value = {json.dumps(value)}")
        else:
            self.tab.write(f"[name={name}]", value)

    def texts(self, selector: str) -> list[str]:
        found = self.tab.run(f"[...document.querySelectorAll('{selector}')].map(each => each.innerText).join('|')")
        return str(found).split("|")

    def finish(self) -> None:
        """No exception, no violation of the policy, no script of an item, and no request to any other host."""
        assert self.tab.parameters_of("Runtime.exceptionThrown") == []
        logged = [each["entry"] for each in self.tab.parameters_of("Log.entryAdded")]
        assert [each for each in logged if each["source"] != "network"] == []
        urls = [each["request"]["url"] for each in self.tab.parameters_of("Network.requestWillBeSent")]
        assert all(url.startswith((f"{self.server.base}/", "about:", "data:")) for url in urls)
        assert self.tab.run("window.hacked === undefined")
