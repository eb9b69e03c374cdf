"""What a program does with the client that openapi-generator generates in Python."""

import json
import sys
from typing import TYPE_CHECKING

from openapi_client import (
    ApiClient,
    ApiException,
    Configuration,
    EventsApi,
    Problem,
    ProductEvent,
    ProductField,
    ProductInput,
    ProductPatch,
    ProductsApi,
    ProductSortKey,
    ResultField,
    ResultOwnField,
    ResultOwnSortKey,
    ResultsApi,
    ResultSortKey,
    UserInput,
    UsersApi,
)


def run(base_url: str, key: str) -> dict[str, object]:
    # Without the option, paths with servers of their own, such as /events, are no URLs: "No host specified".
    client = ApiClient(Configuration(base_url, access_token=key, ignore_operation_servers=True))
    products = ProductsApi(client)
    listed = products.list_products()
    first: str = listed[0].name
    if TYPE_CHECKING:
        listed[0].nmae  # type: ignore[attr-defined]  # noqa: B018 - a product has no such field, and mypy knows it
    one = products.read_product(listed[0].id)
    created = products.create_product(ProductInput(name="Shelf", price=5))
    changed = products.merge_product(created.id, ProductPatch(stock=3))
    sort = [ProductSortKey.price_descending, ProductSortKey.name]
    found = products.list_products(price_gte=20, sort=sort)
    try:
        products.create_product(ProductInput.model_construct(name=""))  # unchecked: else the client refuses it
        raise AssertionError("it is created")
    except ApiException as refused:
        error = refused.data
    assert isinstance(error, Problem) and error.errors
    event = EventsApi(client).list_events()[0].actual_instance
    names = products.list_products_without_preload_content(fields=[ProductField.name]).json()
    results, users = ResultsApi(client), UsersApi(client)
    result, *_ = results.list_results_without_preload_content(embed=["keeper"]).json()
    sums = products.list_products_without_preload_content(count=["status"], aggregate_sum=["price"], price_gte=20)
    groups = sums.json()
    filtered = results.list_results(by_keeper={"keeper.email": "ada@example.org", "keeper.email[like]": "ADA"})
    fields = [ResultField.level, ResultField.keeper_dot_email]
    keys = [ResultSortKey.keeper_dot_email_descending, ResultSortKey.level_descending]
    path = results.list_results_without_preload_content(fields=fields, sort=keys).json()
    chosen = users.list_users_without_preload_content(
        embed=["results.keeper"],
        fields_results_keeper=[ResultOwnField.level],
        sort_results_keeper=[ResultOwnSortKey.level],
        limit_results_keeper=1,
        where_results_keeper="(level[gte]=2)",
    ).json()
    upserted = users.create_user(UserInput(email="ada@example.org", name="Ada"), on_conflict="email")
    return {
        "first": first,
        "price": one.price,
        "created": [created.name, created.status],
        "found": [each.name for each in found],
        "problem": [error.status, error.title, error.errors[0].pointer],
        "stock": changed.stock,
        "names": names[0],
        "keeper": [result["level"], result["keeper"]["email"]],
        "event": isinstance(event, ProductEvent) and event.type == "product.created" and event.data.name,
        "groups": groups,
        "filtered": [each.level for each in filtered],
        "path": path[0],
        "chosen": chosen[0]["results.keeper"],
        "upserted": upserted.name,
    }


print(json.dumps(run(*sys.argv[1:])))
