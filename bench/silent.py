"""This service without events: the difference is the cost of recording them."""

from dataclasses import replace

import resources
from restkeeper import create_app
from restkeeper.resources import find_resources

app = create_app(None, [replace(resource, events=False) for resource in find_resources(resources)])
