"""Ours, but that no change is an event: what recording them costs is the difference."""

from dataclasses import replace

from app import create_app
from resources import declared

app = create_app(resources=[replace(resource, events=False) for resource in declared()])
