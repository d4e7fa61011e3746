"""An answer to a request, with redirects followed as far as that is safe."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx

from perennial.downloads import addresses
from perennial.downloads.exchange import Answer, Request, exchange
from perennial.downloads.failures import Refused
from perennial.downloads.limits import Deadline, Limits

REDIRECTING = {301, 302, 303, 307, 308}


@contextmanager
def ask(
    url: str,
    headers: Mapping[str, str],
    limits: Limits,
    deadline: Deadline,
    credentials: tuple[str, str] | None = None,
) -> Iterator[Answer]:
    """Request a file and follow redirects; credentials are sent to the first server only.

    Raises:
        Failure: no answer, or a redirect that must not be followed; names its target host.
    """
    try:
        first = addresses.without_credentials(url)
    except httpx.InvalidURL:
        raise Refused("this is no address") from None
    target = first
    for hop in range(limits.redirects + 1):
        request = Request(
            url=target,
            headers=headers,
            credentials=credentials if addresses.same_origin(first, target) else None,
            redirected=hop > 0,
        )
        with exchange(request, limits, deadline) as answer:
            if answer.status not in REDIRECTING:
                yield answer
                return
            location = answer.headers.get("Location", "")
        try:
            target = addresses.redirected(target, location)
        except addresses.Forbidden as error:
            raise Refused(str(error)) from error
    raise Refused(f"more than {limits.redirects} redirects, the last to {target.scheme}://{target.host}")
