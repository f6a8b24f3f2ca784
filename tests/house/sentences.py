"""The sentences of a page, as a reader meets them: those of paragraphs, list items and table cells."""

import re
from collections.abc import Iterator

MOST_WORDS = 25
_FENCE = re.compile(r"^ *```.*?^ *```[^\n]*$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"(`+).*?\1", re.DOTALL)
_ADDRESS = re.compile(r"<?https?://\S+")
_END = re.compile(r"(?<=[.!?])[)*_\"]*\s+(?=[^a-z])|\s·\s")  # a dot in the middle separates links
_BEGIN = re.compile(r"^ *(?:[-*+] |\d{1,2}\. |#|>)")
_WORD = re.compile(r"[^\W_]")


def long_sentences(page: str) -> list[str]:
    """The sentences of a page that have more than `MOST_WORDS` words."""
    return [sentence for sentence in sentences(page) if words(sentence) > MOST_WORDS]


def words(sentence: str) -> int:
    """Code and addresses do not count; the text of a link does."""
    return sum(bool(_WORD.search(word)) for word in sentence.split())


def sentences(page: str) -> Iterator[str]:
    """Each sentence without its Markdown. Code between backticks becomes an ellipsis."""
    text = _COMMENT.sub("", _FENCE.sub("\n", page))
    for block in _blocks(text):
        yield from (part for part in _END.split(_plain(block)) if part.strip())


def _plain(block: str) -> str:
    text = _LINK.sub(r"\1", _CODE.sub("\N{HORIZONTAL ELLIPSIS}", block))
    return " ".join(_ADDRESS.sub("", text).split())


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs, list items, headings and table cells."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_row = line.lstrip().startswith("|")
        if is_row or not line.strip() or _BEGIN.match(line):
            yield from ("\n".join(lines),) if lines else ()
            lines = []
        if is_row:
            yield from re.split(r"(?<!\\)\|", line)
        elif line.startswith("#"):
            yield line.lstrip("# ")
        elif line.strip():
            lines.append(_BEGIN.sub("", line, count=1))
