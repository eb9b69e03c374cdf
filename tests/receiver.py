"""Endpoints for webhooks that verify requests with the unmodified `standardwebhooks` package."""

import json
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError


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
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                if len(body) < length:  # the worker was killed while it sent
                    self.close_connection = True
                    return
                status = receiver.take(self.path.strip("/"), dict(self.headers.items()), body)
                if status is None:
                    receiver.ended.wait(300)
                    self.close_connection = True
                    return
                head = f"HTTP/1.1 {status} x\r\nContent-Length: 2\r\n\r\nok"
                self.wfile.write(head.encode())

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

            def handle(self) -> None:
                try:
                    super().handle()
                except ConnectionError:
                    self.close_connection = True  # the worker was killed

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512

        self._server = Server(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> "Receiver":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._thread.join(30)
        self._server.server_close()

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
