"""Access tokens: JWTs of one issuer for this service (RFC 7519, RFC 8725, RFC 9068)."""

from importlib import import_module

from restkeeper.feature import Seams
from restkeeper.resources.call import Caller
from restkeeper.service import Service
from restkeeper.web.auth import Credentials
from restkeeper.web.operations import Contribution

SCHEMES = {
    "Bearer": {"type": "http", "scheme": "bearer", "description": "A JSON Web Token."},
    "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "A JSON Web Token."},
}


def install(service: Service) -> Seams:
    """Accept the tokens of the issuer, if one is configured. Raises Unavailable if its key file cannot be used."""
    config, described = service.config, (Contribution(security=SCHEMES),)
    if not config.jwt_jwks:
        return Seams(describe=described)
    tokens = import_module("restkeeper.features.jwt.tokens")  # with its libraries, which take a tenth of a start
    names = {"owner": config.jwt_owner, "roles": config.jwt_roles}
    verifier = tokens.Tokens(config.jwt_issuer, config.jwt_audience, config.jwt_jwks, **names, now=service.clock.time)
    guard = service.guard

    def resolve(token: str, digest: str) -> Caller | None:
        if not tokens.is_token(token):
            return None
        claims = verifier.verify(token)
        who = f"jwt:{claims.subject}"
        scopes = claims.scopes | guard.scopes_of(guard.roles.keys() & claims.roles)  # an issuer has other roles, too
        return Caller(who, scopes, claims.owners or (who,))  # a subject could have the name of a team

    return Seams(identify=(Credentials(resolve, are_signed=True),), describe=described)
