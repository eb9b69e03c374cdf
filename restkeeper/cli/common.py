"""What all commands share: the service they work on, and failures of one line each."""

from typing import Any

import click
from flask import current_app

from restkeeper.errors import Problem
from restkeeper.resources.resource import Resource
from restkeeper.service import Service, service_of
from restkeeper.storage.errors import StoreError
from restkeeper.web.errors import problem_of


class Refused(click.ClickException):
    """The command cannot do what is asked, whatever is in the store."""

    exit_code = 2


class Command(click.Command):
    """A command whose foreseen failures are one line each."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; raises click's own exceptions."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # whoever read the output has gone; click ends quietly
        except (Problem, StoreError) as problem:
            raise click.ClickException(told_of(problem)) from None
        except UnicodeDecodeError as error:
            raise click.ClickException(f"the file is not UTF-8 (byte {error.start})") from None
        except OSError as error:
            told = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise click.ClickException(told) from None


def resource_of(service: Service, name: str) -> Resource:
    """The collection of that name; refuses any other."""
    for resource in service.resources:
        if resource.name == name:
            return resource
    names = ", ".join(each.name for each in service.resources)
    raise Refused(f"there is no collection {name!r}; there are {names}")


def service_of_app(*, creates: bool = False, feature: str = "") -> Service:
    """The service that a command works on; refuses a command of a `feature` that is closed.

    Its store is opened when it is first used. Raises StoreUnavailable when there is none yet, unless the command
    `creates` it.
    """
    service = service_of(current_app)
    if feature and feature not in service.features:
        raise Refused(f"this service has no {feature}: the feature {feature!r} is closed")
    if service.location.temporary:
        raise Refused(
            f"DATABASE_URL={service.location.name!r}: is gone when the command ends; name a file, sqlite:///FILE"
        )
    if not creates:
        service.location.require()
    return service


def told_of(problem: Problem | StoreError) -> str:
    """All that a problem says, in one line."""
    problem = problem_of(problem) if isinstance(problem, StoreError) else problem
    faults = [f"{fault['pointer']}: {fault['detail']}" for fault in problem.members.get("errors", ())]
    return "; ".join(faults) or str(problem)
