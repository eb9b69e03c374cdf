"""A real, headless browser for tests, over the DevTools protocol."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import websocket

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WAIT_SECONDS = 60.0
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
        self._socket = websocket.create_connection(address, timeout=WAIT_SECONDS, suppress_origin=True)
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
