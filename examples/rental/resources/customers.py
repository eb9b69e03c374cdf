"""Customers read what is known of them, but for the note. Staff have `customers:all`, and write; nobody is deleted."""

from restkeeper import Ownership, Resource
from schemas.customer import CustomerSchema

METHODS = ("GET", "POST", "PUT", "PATCH")
RESOURCE = Resource(
    "customers", "customer", CustomerSchema, ids="client", ownership=Ownership.ALL, methods=METHODS, search=("name",)
)
