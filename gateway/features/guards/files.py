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
_PDF = re.compile(rb"%PDF-\d")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MOST_CONTROL = 1 / 32
"""Share of control characters in a text. Compressed bytes have a tenth."""
_WIDE = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_SHORT = 256
"""Letters of a value that may be a word, though it is one of base64 too."""
_OTHER_ALPHABET = str.maketrans("-_", "+/")
_NO_BASE64 = re.compile("[^A-Za-z0-9+/]")
_WRITTEN = re.compile(r"(?:[A-Za-z0-9+/_\-\r\n]{4})*[A-Za-z0-9+/_\-\r\n]{0,3}={0,2}\s*")
_PRESENT = re.compile(rb'"(?:data|b64_json|file_data|bytes)"\s*:\s*"|data:')


def has_files(body: bytes | memoryview) -> bool:
    """Whether a body of JSON without escapes in its names may have an encoded file."""
    low = bytes(body).lower()
    # Most bodies have none of the words, which shows in a tenth of the expression's time.
    may = b"data" in low or b'"bytes"' in low or b'"b64_json"' in low
    return may and _PRESENT.search(low) is not None


def is_text_file(value: dict[str, Any]) -> bool:
    """Whether an object declares its file as a text."""
    return any(str(value.get(kind) or "").lower().startswith("text/") for kind in KINDS)


def is_data_url(text: str) -> bool:
    """Whether a text is a file as an address."""
    return text[:5].lower() == "data:"


def masked_file(encoded: str, mask: Callable[[str], str], *, declared: bool = False) -> str:
    """A file in base64, or in a `data:` URL, with masks; the same if it is no text. A `declared` text always is one.

    A value that may be no base64 at all is examined as it is written, too.
    """
    if is_data_url(encoded):
        return _masked_url(encoded, mask, declared)
    if len(encoded) <= _SHORT or _WRITTEN.fullmatch(encoded) is None:
        changed = mask(encoded)
        if changed != encoded:
            return changed
    return _masked_base64(encoded, mask, declared)


def _masked_url(url: str, mask: Callable[[str], str], declared: bool) -> str:
    head, _, data = url.partition(",")
    form = "".join(head.lower().split())
    if form.endswith(";base64"):
        changed = _masked_base64(data, mask, declared or form.startswith("data:text/"))
        return url if changed == data else f"{head},{changed}"
    text = unquote(data, errors="replace")
    return url if (masked := mask(text)) == text else f"{head},{quote(masked)}"


def _masked_base64(data: str, mask: Callable[[str], str], declared: bool) -> str:
    if not declared and _is_binary(_decoded(data[:_SAMPLE])):
        return data
    content = _decoded(data)
    codec = next((name for mark, name in _WIDE if content.startswith(mark)), "utf-8")
    errors = "surrogateescape" if codec == "utf-8" else "surrogatepass"
    if codec != "utf-8":
        content = content[: len(content) // 2 * 2]
    changed = mask(text := content.decode(codec, errors))
    return data if changed == text else base64.b64encode(changed.encode(codec, errors)).decode()


def _is_binary(sample: bytes) -> bool:
    if any(sample.startswith(mark) for mark, _ in _WIDE):
        return False
    return _PDF.match(sample) is not None or len(_CONTROL.findall(sample)) > _MOST_CONTROL * len(sample)


def _decoded(data: str) -> bytes:
    """Base64 of either alphabet, as lenient servers read it: other letters and a wrong padding are passed over."""
    data = _NO_BASE64.sub("", data.translate(_OTHER_ALPHABET))
    if len(data) % 4 == 1:
        data = data[:-1]
    return base64.b64decode(data + "=" * (-len(data) % 4))
