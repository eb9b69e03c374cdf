"""Endpoints for webhooks that verify requests with the unmodified `standardwebhooks` package."""

import json
import random
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.endpoint import EndpointConnection, serving

HANGING_SECONDS = 30.0  # longer than any sender waits


@dataclass
class Inbox:
    """The requests that one endpoint accepted. `behaves` chooses its response: a status, or None for never."""

    behaves: Callable[[], int | None]
    secret: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)  # those that got a 2xx, in their order
    ids: list[str] = field(default_factory=list)  # webhook-id of each
    refused: int = 0  # invalid signatures
    tries: int = 0


class Receiver:
    """A server at 127.0.0.1 with three endpoints: healthy, flaky (half of its responses fail), hanging."""

    def __init__(self) -> None:
        chance = random.Random(0)  # noqa: S311
        self.ended = threading.Event()
        self.changed = threading.Condition()
        self.inboxes = {
            "healthy": Inbox(lambda: 200),
            "flaky": Inbox(lambda: 200 if chance.random() < 0.5 else 500),
            "hanging": Inbox(lambda: None),
        }
        self._stack = ExitStack()

    def __enter__(self) -> "Receiver":
        endpoint = self._stack.enter_context(serving(self._respond))
        self.base = f"http://127.0.0.1:{endpoint.port}"
        return self

    def __exit__(self, *exc: object) -> None:
        self.ended.set()
        self._stack.close()

    def _respond(self, connection: EndpointConnection) -> None:
        """Respond to each complete request of a connection; a worker may be killed while it sends one."""
        while request := connection.request():
            head, _, body = request.partition(b"\r\n\r\n")
            line, *fields = head.decode().split("\r\n")
            headers = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
            if len(body) < int(headers["content-length"]):
                return
            status = self.take(line.split()[1].strip("/"), headers, body)
            if status is None:
                self.ended.wait(HANGING_SECONDS)
                return
            connection.send(f"HTTP/1.1 {status} x\r\nContent-Length: 2\r\n\r\nok".encode())

    def take(self, name: str, headers: dict[str, str], body: bytes) -> int | None:
        """Verify a delivery and choose the response."""
        inbox = self.inboxes[name]
        try:
            event = Webhook(inbox.secret).verify(body, headers)
        except WebhookVerificationError:
            event = None
        with self.changed:
            inbox.tries += 1
            if event is None:
                inbox.refused += 1
                return 400
            if (status := inbox.behaves()) == 200:
                inbox.events.append(json.loads(body))
                inbox.ids.append(headers["webhook-id"])
            self.changed.notify_all()
            return status
