"""Reads the text of a custom tool's call, while the chat streams it as the one argument of a function."""

import re

import msgspec

from adapters.wire import decoding
from adapters.wire.responses.tools import INPUT

_BEGIN = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
_WHOLE = re.compile(
    r'(?:[^"\\]|\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])))*"
)
"""Whole characters of a JSON text. The first half of an escaped pair waits for what follows."""
_LONGEST_BEGIN = 64
"""Characters after which arguments have another form."""

_text = msgspec.json.Decoder(str).decode
_arguments = msgspec.json.Decoder(dict[str, str]).decode


class CustomInput:
    """The input of one call. `take` receives the pieces of the arguments in order."""

    __slots__ = ("_is_text", "_pending", "_raw", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        """The text so far."""
        self._raw: list[str] = []
        self._pending = ""
        self._is_text: bool | None = None
        """Whether the text goes on; None before it has begun."""

    def take(self, arguments: str) -> str:
        """The text that a piece adds."""
        self._raw.append(arguments)
        if self._is_text is None:
            self._begin(arguments)
        elif self._is_text:
            self._pending += arguments
        return self._more() if self._is_text else ""

    def end(self) -> str:
        """The rest: all of it if the arguments have another form than the tool's."""
        return "" if self.pieces or self._is_text else self._add(_input_of("".join(self._raw)))

    def _begin(self, arguments: str) -> None:
        if len(self._pending) < _LONGEST_BEGIN:
            self._pending += arguments
            if (begin := _BEGIN.match(self._pending)) is not None:
                self._is_text, self._pending = True, self._pending[begin.end() :]

    def _more(self) -> str:
        match = _WHOLE.match(self._pending)
        text = "" if match is None else match[0]
        self._pending = self._pending[len(text) :]
        self._is_text = not self._pending.startswith('"')
        try:
            return self._add(_text(f'"{text}"'.encode()))
        except (msgspec.DecodeError, UnicodeError):  # not JSON, such as a line break as it is
            return self._add(text)

    def _add(self, text: str) -> str:
        if text:
            self.pieces.append(text)
        return text


def _input_of(arguments: str) -> str:
    """The input in arguments of another form: their only text, or the arguments themselves."""
    try:
        given = _arguments(arguments)
    except decoding.MALFORMED_JSON:
        return arguments
    return given.get(INPUT) or (next(iter(given.values())) if len(given) == 1 else arguments)
