"""JSON Web Tokens as credentials."""

from restkeeper.features.jwt.tokens import Tokens, is_token
from restkeeper.service import Service
from restkeeper.web.application import Application
from restkeeper.web.auth import Caller
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
    tokens = Tokens(config.jwt_issuer, config.jwt_audience, config.jwt_jwks, now=service.clock.time)

    def resolve(token: str, digest: str) -> Caller | None:
        if not is_token(token):
            return None
        claims = tokens.verify(token)
        return Caller(f"jwt:{claims.subject}", claims.scopes)

    service.guard.resolvers.append(resolve)
