"""Access tokens: JWTs of one issuer for this service (RFC 7519, RFC 8725, RFC 9068)."""

from importlib import import_module

from restkeeper.resources.call import Caller
from restkeeper.service import Service
from restkeeper.web.application import Application
from restkeeper.web.operations import Contribution

SCHEMES = {
    "Bearer": {"type": "http", "scheme": "bearer", "description": "A JSON Web Token."},
    "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "A JSON Web Token."},
}


def install(app: Application, service: Service) -> None:
    """Accept the tokens of the issuer, if one is configured. Raises Unavailable if its key file cannot be used."""
    service.contributions.append(Contribution(security=SCHEMES))
    config = service.config
    if not config.jwt_jwks:
        return
    tokens = import_module("restkeeper.features.jwt.tokens")  # with its libraries, which take a tenth of a start
    verifier = tokens.Tokens(
        config.jwt_issuer, config.jwt_audience, config.jwt_jwks, owner=config.jwt_owner, now=service.clock.time
    )

    def resolve(token: str, digest: str) -> Caller | None:
        if not tokens.is_token(token):
            return None
        claims = verifier.verify(token)
        who = f"jwt:{claims.subject}"
        return Caller(who, claims.scopes, claims.owners or (who,))  # a subject could have the name of a team

    service.guard.verifiers.append(resolve)
