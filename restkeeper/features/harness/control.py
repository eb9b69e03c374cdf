"""The routes that control spaces: below /__harness__, with an OpenAPI document of their own."""

import re
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from flask import Blueprint, request

import restkeeper.features.harness.documents as documents
from restkeeper.errors import Conflict, NotFound
from restkeeper.features.harness.faults import Declared
from restkeeper.features.harness.matching import count_requests
from restkeeper.features.harness.seeding import seed
from restkeeper.features.harness.spaces import Space, Spaces
from restkeeper.resources.call import PUBLIC
from restkeeper.storage.feed import last_event
from restkeeper.web.application import SERVE
from restkeeper.web.operations import BODY_PROBLEMS, Body, returns, takes
from restkeeper.web.views import read_body

LOOK_SECONDS = 0.02
_NEW_SPACE = documents.NewSpaceSchema()


class Control:
    """The handlers. Whoever reaches the server may call them."""

    needs = PUBLIC

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces

    def blueprint(self) -> Blueprint:
        """The routes."""
        routes = Blueprint("spaces", __name__, url_prefix="/spaces")
        for rule, method, view in (
            ("", "POST", self.create_space),
            ("/<id>", "DELETE", self.drop_space),
            ("/<id>/reset", "POST", self.reset_space),
            ("/<id>/seed", "POST", self.seed_space),
            ("/<id>/snapshots", "POST", self.take_snapshot),
            ("/<id>/restore", "POST", self.restore_snapshot),
            ("/<id>/clock", "PATCH", self.set_clock),
            ("/<id>/faults", "POST", self.add_fault),
            ("/<id>/stubs", "POST", self.add_stub),
            ("/<id>/faults", "GET", self.list_unmet_faults),
            ("/<id>/faults", "DELETE", self.clear_faults),
            ("/<id>/requests", "GET", self.list_requests),
            ("/<id>/requests", "DELETE", self.clear_requests),
            ("/<id>/assert_requested", "POST", self.assert_requested),
            ("/<id>/deliveries", "GET", self.list_deliveries),
            ("/<id>/responses", "PUT", self.set_responses),
        ):
            routes.add_url_rule(rule, view_func=view, methods=[method])
        return routes

    @takes(body=Body(_NEW_SPACE))
    @returns(documents.SpaceSchema, Conflict, NotFound, *BODY_PROBLEMS, status=201)
    def create_space(self) -> dict[str, str]:
        """Create a space: a service of its own, at a port of its own. The body can be left out."""
        is_empty = not request.content_length and "HTTP_TRANSFER_ENCODING" not in request.environ
        body = _NEW_SPACE.load({}) if is_empty else read_body(_NEW_SPACE)
        data, random = body.pop("seed"), body.pop("random")
        space = self._spaces.create(random, request.environ.get(SERVE), **body)
        try:
            if data:
                self._seed(space, data)
        except BaseException:
            self._spaces.drop(space)
            raise
        host = re.sub(r":\d+$", "", request.host) + f":{space.port}" if space.port else request.host
        url, control = f"{request.scheme}://{host}", f"{request.root_url}spaces/{space.id}"
        return {"id": space.id, "url": url, "control": control}

    @returns(documents.UnmetSchema, NotFound, Conflict)
    def drop_space(self, id: str) -> dict[str, Any]:
        """End a space."""
        self._spaces.drop(space := self._spaces.find(id))
        return {"unmet": space.faults.unmet}

    @returns(documents.UnmetSchema, NotFound)
    def reset_space(self, id: str) -> dict[str, Any]:
        """Make a space as new, and empty. Snapshots stay."""
        faults = (space := self._spaces.find(id)).faults
        self._spaces.renew(space)
        return {"unmet": faults.unmet}

    @takes(body=documents.SeedSchema)
    @returns(NotFound, Conflict)
    def seed_space(self, id: str, body: dict[str, Any]) -> dict[str, int]:
        """Add items, all or none. The response has how many of each collection."""
        return self._seed(self._spaces.find(id), body["seed"])

    def _seed(self, space: Space, data: dict[str, Any]) -> dict[str, int]:
        with self._spaces.using(space) as instance:
            before, done = last_event(instance.store), seed(instance.service, data)
            if space.catcher.since == before:
                space.catcher.since = last_event(instance.store)
            return done

    @returns(documents.SnapshotSchema, NotFound, Conflict, status=201)
    def take_snapshot(self, id: str) -> dict[str, str]:
        """Keep the data of a space as they are."""
        return {"name": self._spaces.find(id).snapshot()}

    @takes(body=documents.SnapshotSchema)
    @returns(documents.SnapshotSchema, NotFound)
    def restore_snapshot(self, id: str, body: dict[str, Any]) -> dict[str, str]:
        """Have the data of a snapshot again; the clock, faults and requests stay."""
        self._spaces.find(id).restore(body["name"])
        return body

    @takes(body=documents.ClockSchema)
    @returns(documents.ClockSchema, NotFound)
    def set_clock(self, id: str, body: dict[str, Any]) -> dict[str, Any]:
        """Read, set, freeze or advance the time of a space. What webhooks get until then is sent."""
        space = self._spaces.find(id)
        with self._spaces.using(space) as instance:
            clock = instance.clock
            moment = body["now"].timestamp() if "now" in body else clock.time()
            if body:
                space.catcher.move_clock(moment + body.get("advance", 0.0), frozen=body.get("frozen"))
            return {"now": datetime.fromtimestamp(clock.time(), UTC), "frozen": clock.frozen is not None}

    @takes(body=documents.NewFaultSchema)
    @returns(documents.NumberSchema, NotFound, Conflict)
    def add_fault(self, id: str, body: dict[str, Any]) -> Declared:
        """Add a fault. A request meets all of its delays until the first fault of another kind."""
        return self._spaces.find(id).faults.add(body)

    @takes(body=documents.StubSchema)
    @returns(documents.NumberSchema, NotFound, Conflict)
    def add_stub(self, id: str, body: dict[str, Any]) -> Declared:
        """Respond where the service has no route, until a reset; to requests of several stubs by the last one."""
        return self._spaces.find(id).faults.add_stub(body)

    @returns(documents.UnmetDeclarationSchema(many=True), NotFound)
    def list_unmet_faults(self, id: str) -> list[Declared]:
        """The faults, stubs and responses to deliveries that have not happened as often as declared, or not once.

        Also those that were cleared: most are in the wrong place.
        """
        return self._spaces.find(id).faults.unmet

    @returns(NotFound)
    def clear_faults(self, id: str) -> dict[str, Any]:
        """Have no faults any more."""
        self._spaces.find(id).faults.clear()
        return {}

    @takes(query=documents.RequestQuery)
    @returns(documents.RequestSchema(many=True), NotFound)
    def list_requests(self, id: str, query: dict[str, Any]) -> list[dict[str, Any]]:
        """The last requests to a space in the order of their arrival, the oldest first."""
        limit = query.pop("limit")
        return [sent.document() for sent in self._spaces.find(id).journal.find(**query)[-limit:]]

    @returns(NotFound)
    def clear_requests(self, id: str) -> dict[str, Any]:
        """Forget the requests: the next one has the number 1."""
        space = self._spaces.find(id)
        with self._spaces.using(space) as instance:
            space.clear_requests(instance)
        return {}

    @takes(body=documents.ExpectedSchema)
    @returns(documents.VerdictSchema, NotFound)
    def assert_requested(self, id: str, body: dict[str, Any]) -> dict[str, Any]:
        """Say whether there were such requests, as soon as it is so."""
        times, least, most = (body.pop(name) for name in ("times", "at_least", "at_most"))
        least = (1 if most is None else 0) if least is None else least
        least, most = (least, most) if times is None else (times, times)
        path, _, query = body["path"].partition("?")
        until = time.monotonic() + body.pop("within")
        body |= {"path": path, "query_text": query or "*", "at_least": least, "at_most": most}
        expected = SimpleNamespace(**body)
        while True:
            verdict = count_requests([*self._spaces.find(id).journal], expected)
            if verdict["message"] is None or time.monotonic() >= until:
                return verdict
            time.sleep(LOOK_SECONDS)

    @takes(query=documents.DeliveryQuery)
    @returns(documents.DeliverySchema(many=True), NotFound)
    def list_deliveries(self, id: str, query: dict[str, Any]) -> list[dict[str, Any]]:
        """Send what webhooks are to get, and return what they got, as soon as there are so many."""
        space = self._spaces.find(id)
        with self._spaces.using(space) as instance:
            deliveries = space.catcher.wait(**query, is_over=lambda: space.instance is not instance)
        self._spaces.find(id)  # it may have been dropped meanwhile
        return deliveries

    @takes(body=documents.ResponsesSchema)
    @returns(documents.ResponsesSchema, NotFound)
    def set_responses(self, id: str, body: dict[str, Any]) -> Declared:
        """Give the responses to the next deliveries, in place of the endpoints."""
        space = self._spaces.find(id)
        with self._spaces.using(space):
            return space.catcher.respond(body["statuses"])
