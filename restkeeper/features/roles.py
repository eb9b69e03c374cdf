"""Roles: names of the service's own for sets of scopes.

A key or a token has the name, and each request the scopes that the role has then: see `Guard.scopes_of`.
"""

import re
from collections.abc import Collection, Mapping
from functools import partial

from restkeeper.config import ConfigError
from restkeeper.feature import Seams
from restkeeper.resources.call import ADMIN, ROLE
from restkeeper.service import Service
from restkeeper.web.auth import Guard


def install(service: Service) -> Seams:
    """Let keys and tokens have the roles. Raises ValueError for a role that is none, here or when it is `ready`."""
    guard, roles = service.guard, service.roles
    if service.config.jwt_roles and not roles:
        raise ConfigError(f"JWT_ROLES={service.config.jwt_roles!r}: has no effect: the service declares no roles")
    if not isinstance(roles, Mapping):
        raise ValueError(f"roles={roles!r}: must be the scopes of each role, by its name")
    for name, scopes in roles.items():
        if not re.fullmatch(ROLE, name) or name == ADMIN:
            raise ValueError(f"roles: {name!r}: a name has small letters, digits, - and _, and is not {ADMIN!r}")
        if isinstance(scopes, str) or not isinstance(scopes, Collection):
            raise ValueError(f"roles: {name!r}: {scopes!r} must be a tuple of scopes, such as ('products:read',)")
        guard.roles[name] = frozenset(scopes)
    guard.scopes |= dict.fromkeys(roles)
    return Seams(ready=(partial(require_scopes, guard),))


def require_scopes(guard: Guard) -> None:
    """Raises ValueError for a role with a scope that no route of the service needs."""
    known = [scope for scope in guard.scopes if scope not in guard.roles]
    for name, scopes in guard.roles.items():
        if unknown := sorted(scopes.difference(known)):
            raise ValueError(f"roles: {name!r}: there is no scope {unknown[0]!r}; there are {', '.join(known)}")
