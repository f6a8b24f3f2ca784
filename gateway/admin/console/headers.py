"""Headers that protect the responses of the admin listener in browsers."""

from aiohttp import web

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""The content security policy of the console's page and its files."""
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""The policy of all other responses, which are data."""
_ALL = {
    "Content-Security-Policy": DATA_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


async def protect(_: web.Request, response: web.StreamResponse) -> None:
    """Add each header that the response does not have, before it is sent."""
    for name, value in _ALL.items():
        response.headers.setdefault(name, value)
