"""What a program does with the client that openapi-python-client generates."""

import json
import sys
from typing import TYPE_CHECKING

from restkeeper_client import AuthenticatedClient
from restkeeper_client.api.events import list_events
from restkeeper_client.api.products import create_product, list_products, merge_product, read_product
from restkeeper_client.api.results import list_results
from restkeeper_client.api.users import create_user, list_users
from restkeeper_client.models import (
    CreateUserOnConflict,
    ListProductsAggregatesumItem,
    ListProductsCountItem,
    ListResultsEmbedItem,
    ListUsersEmbedItem,
    Problem,
    Product,
    ProductEvent,
    ProductField,
    ProductInput,
    ProductPatch,
    ProductSortKey,
    ResultField,
    ResultOwnField,
    ResultOwnSortKey,
    ResultSortKey,
    User,
    UserInput,
)
from restkeeper_client.types import UNSET


def run(base_url: str, key: str) -> dict[str, object]:
    client = AuthenticatedClient(base_url, token=key)
    listed = list_products.sync(client=client)
    assert isinstance(listed, list)
    first: str = listed[0].name
    if TYPE_CHECKING:
        listed[0].nmae  # type: ignore[union-attr]  # noqa: B018 - a product has no such field, and mypy knows it
    one = read_product.sync(listed[0].id, client=client)
    assert isinstance(one, Product)
    created = create_product.sync(client=client, body=ProductInput(name="Shelf", price=5))
    assert isinstance(created, Product)
    changed = merge_product.sync(created.id, client=client, body=ProductPatch(stock=3))
    assert isinstance(changed, Product)
    sort = [ProductSortKey.PRICE_DESCENDING, ProductSortKey.NAME]
    found = list_products.sync(client=client, pricegte=20, sort=sort)
    assert isinstance(found, list)
    error = create_product.sync(client=client, body=ProductInput(name=""))
    assert isinstance(error, Problem) and error.errors
    events = list_events.sync(client=client)
    assert isinstance(events, list)
    event = events[0]
    api = client.get_httpx_client()  # for responses that are no whole items
    names = api.request(**list_products._get_kwargs(fields=[ProductField.NAME])).json()
    result, *_ = api.request(**list_results._get_kwargs(embed=[ListResultsEmbedItem.KEEPER])).json()
    sums = [ListProductsAggregatesumItem.PRICE]
    counted = list_products._get_kwargs(
        count=[ListProductsCountItem.STATUS], aggregatesum=sums, pricegte=20, limit=UNSET
    )
    groups = api.request(**counted).json()
    filtered = list_results.sync(client=client, or_=["(keeper.email=ada@example.org)"])
    assert isinstance(filtered, list)
    fields = [ResultField.LEVEL, ResultField.KEEPER_DOT_EMAIL]
    keys = [ResultSortKey.KEEPER_DOT_EMAIL_DESCENDING, ResultSortKey.LEVEL_DESCENDING]
    path = api.request(**list_results._get_kwargs(fields=fields, sort=keys)).json()
    embedded = list_users._get_kwargs(
        embed=[ListUsersEmbedItem.RESULTS_KEEPER],
        fieldsresults_keeper=[ResultOwnField.LEVEL],
        sortresults_keeper=[ResultOwnSortKey.LEVEL],
        limitresults_keeper=1,
        whereresults_keeper="(level[gte]=2)",
    )
    chosen = api.request(**embedded).json()
    assert isinstance(list_users.sync(client=client), list)
    user = UserInput(email="ada@example.org", name="Ada")
    upserted = create_user.sync(client=client, body=user, on_conflict=CreateUserOnConflict.EMAIL)
    assert isinstance(upserted, User)
    return {
        "first": first,
        "price": one.price,
        "created": [created.name, created.status],
        "found": [each.name for each in found],
        "problem": [error.status, error.title, error.errors[0].pointer],
        "stock": changed.stock,
        "names": names[0],
        "keeper": [result["level"], result["keeper"]["email"]],
        "event": isinstance(event, ProductEvent) and event.type_ == "product.created" and event.data.name,
        "groups": groups,
        "filtered": [each.level for each in filtered],
        "path": path[0],
        "chosen": chosen[0]["results.keeper"],
        "upserted": upserted.name,
    }


print(json.dumps(run(*sys.argv[1:])))
