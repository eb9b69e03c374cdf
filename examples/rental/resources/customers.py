"""Customers read what is known of them, but for the note. Staff have `customers:all`, and write."""

from restkeeper import Ownership, Resource
from schemas.customer import CustomerSchema

RESOURCE = Resource("customers", "customer", CustomerSchema, ids="client", ownership=Ownership.ALL, search=("name",))
