"""What an RFC or an operator defines: knows no resource."""

from collections.abc import Callable

from flask import Request, request

# The request itself: each attribute of Flask's proxy costs a microsecond, and a request needs a dozen.
current_request: Callable[[], Request] = request._get_current_object  # type: ignore[attr-defined]
