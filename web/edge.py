"""The edge: what is refused before anything looks at it."""

from flask import Flask, request

from errors import BadRequest, UriTooLong


def install(app: Flask, max_url: int) -> None:
    """Refuse malformed hosts, and addresses of more than `max_url` bytes, in `app`."""

    def require_sane_address() -> None:
        environ = request.environ
        if not request.host:  # werkzeug's word for one that is malformed (RFC 9112, section 3.2)
            raise BadRequest("the Host header is not a host")
        if len(environ.get("PATH_INFO", "")) + len(environ.get("QUERY_STRING", "")) > max_url:
            raise UriTooLong(f"path and query have at most {max_url} bytes together")

    app.before_request(require_sane_address)
