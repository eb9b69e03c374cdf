"""Variables of the environment whose names look like misspelt settings."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from restkeeper.config import settings

# Prefixes of our settings only; but Kubernetes creates such names for a service that is called "webhook".
_OWN_PREFIXES = ("IDEMPOTENCY_", "JWT_", "RATE_LIMIT", "WEBHOOK_")
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT|PORT)(_|$)")
_MISSPELT = 0.75  # the similarity of a name that can be nothing else
_SIMILAR = 0.9  # from 0 to 1, as difflib counts: the similarity of URI and URL at the end of a name of two words


def misspelt_settings(environ: Iterable[str], *, all_ours: bool = False) -> list[str]:
    """A line for each variable whose name looks like a misspelt setting; if `all_ours`, also if it has its letters."""
    files = [f"{each.name.upper()}_FILE" for each in settings() if each.metadata["secret"]]
    known = [*(each.name.upper() for each in settings()), *files]
    lines = []
    for name in sorted(set(environ).difference(known)):
        is_own = name.startswith(_OWN_PREFIXES) and not _SERVICE_LINK.search(name)
        best = get_close_matches(name, known, 1, _MISSPELT if is_own else _SIMILAR)
        best = best or [each for each in known if all_ours and sorted(each) == sorted(name)]
        if best or is_own:
            lines.append(f"{name} is no setting" + (f"; did you mean {best[0]}?" if best else ""))
    return lines
