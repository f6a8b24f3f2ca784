"""Encoded files in the bodies of texts: those that are texts themselves, such as CSV and Markdown, have masks inside.

Pictures, sounds, PDFs and other binary files stay as they are.
"""

import base64
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

FIELDS = frozenset(("data", "b64_json", "file_data", "bytes"))
"""Fields with the bytes of a file, if they are texts."""
KINDS = ("media_type", "mimeType", "mime_type", "format")
"""Fields beside `data` that declare it as encoded bytes."""
_SAMPLE = 4096
"""Letters of a file that show whether it is a text."""
_BINARY = re.compile(rb"\A%PDF|[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_WIDE = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_OTHER_ALPHABET = str.maketrans("-_", "+/")
_NO_BASE64 = re.compile("[^A-Za-z0-9+/]")
_PRESENT = re.compile(rb'"(?:data|b64_json|file_data|bytes|url|image_url)"\s*:\s*"')


def has_files(body: bytes | memoryview) -> bool:
    """Whether a body of JSON without escapes in its names may have an encoded file."""
    return _PRESENT.search(body) is not None


def is_text_file(value: dict[str, Any]) -> bool:
    """Whether an object declares its file as a text."""
    return any(str(value.get(kind) or "").startswith("text/") for kind in KINDS)


def masked_file(encoded: str, mask: Callable[[str], str], *, declared: bool = False) -> str:
    """A file in base64, or in a `data:` URL, with masks; the same if it is no text. A `declared` text always is one."""
    head, comma, data = encoded.rpartition(",") if encoded.startswith("data:") else ("", "", encoded)
    declared = declared or head.startswith("data:text/")
    if head and not head.endswith(";base64"):
        changed = mask(text := unquote(data, errors="replace"))
        return encoded if changed == text else f"{head},{quote(changed)}"
    if not declared and _is_binary(data[:_SAMPLE]):
        return encoded
    content = _decoded(data)
    codec = next((name for mark, name in _WIDE if content.startswith(mark) and len(content) % 2 == 0), "utf-8")
    errors = "surrogateescape" if codec == "utf-8" else "surrogatepass"
    changed = mask(text := content.decode(codec, errors))
    if changed == text:
        return encoded
    return f"{head}{comma}{base64.b64encode(changed.encode(codec, errors)).decode()}"


def _is_binary(data: str) -> bool:
    sample = _decoded(data[: len(data) // 4 * 4])
    return not any(sample.startswith(mark) for mark, _ in _WIDE) and _BINARY.search(sample) is not None


def _decoded(data: str) -> bytes:
    """Base64 of either alphabet, as lenient servers read it: other letters and a wrong padding are passed over."""
    data = _NO_BASE64.sub("", data.translate(_OTHER_ALPHABET))
    if len(data) % 4 == 1:
        data = data[:-1]
    return base64.b64decode(data + "=" * (-len(data) % 4))
