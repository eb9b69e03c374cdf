"""The edge: what is refused before anything looks at it, and what every answer says to browsers."""

from flask import Flask, Request, Response, request

from errors import BadRequest, UriTooLong


def install(app: Flask, max_url: int) -> None:
    """Refuse malformed hosts, and addresses of more than `max_url` bytes, in `app`; let no browser guess types."""

    def require_sane_address() -> None:
        asked: Request = request._get_current_object()  # type: ignore[attr-defined] # a proxy asks anew at every dot
        environ = asked.environ
        if not asked.host:  # werkzeug's word for one that is malformed (RFC 9112, section 3.2)
            raise BadRequest("the Host header is not a host")
        if len(environ.get("PATH_INFO", "")) + len(environ.get("QUERY_STRING", "")) > max_url:
            raise UriTooLong(f"path and query have at most {max_url} bytes together")

    def forbid_guessing(response: Response) -> Response:
        response.headers.add("X-Content-Type-Options", "nosniff")
        return response

    app.before_request(require_sane_address)
    app.after_request(forbid_guessing)
