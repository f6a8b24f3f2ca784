"""The bytes of a file that a client sends within a request."""

import base64
import binascii
import re

from adapters.errors import CallerError

_DATA_URL = re.compile(r"data:([A-Za-z0-9.+-]{1,64}/[A-Za-z0-9.+-]{1,64})?(?:;[A-Za-z0-9=.+-]{1,64}){0,4},")


def file_bytes(value: object, name: str) -> bytes:
    """The file in a value: bytes, a `data:` URL, or base64. Raises `CallerError`.

    Other URLs are refused: the gateway fetches nothing that a request names.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise CallerError(f"`{name}` is not a file: send bytes, base64 or a `data:` URL.", param=name)
    if value.startswith(("http:", "https:", "file:", "ftp:")):
        message = f"`{name}` is a URL, and files are not fetched: send the file as base64 or a `data:` URL."
        raise CallerError(message, param=name)
    match = _DATA_URL.match(value)
    if match is not None and not match[0].endswith(";base64,"):
        raise CallerError(f"The `data:` URL in `{name}` is not base64.", param=name)
    try:
        return base64.b64decode(value[match.end() if match else 0 :], validate=True)
    except (binascii.Error, ValueError):
        raise CallerError(f"`{name}` is not base64.", param=name) from None
