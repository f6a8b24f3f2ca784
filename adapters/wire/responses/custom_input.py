"""Reads the text of a custom tool's call, while the chat streams it as the one argument of a function."""

import re

import msgspec

from adapters.wire import decoding
from adapters.wire.responses.tools import INPUT

_BEGIN = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
_WHOLE = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?:[^u]|u[0-9a-fA-F]{4}))*'
)
"""Whole characters of a JSON text. The pairs of an escaped character stay together, so half of one has to wait."""
_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")

_text = msgspec.json.Decoder(str).decode
_arguments = msgspec.json.Decoder(dict[str, str]).decode


class CustomInput:
    """The input of one call. `take` receives the pieces of the arguments in order."""

    __slots__ = ("_begun", "_ended", "_pending", "_raw", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        """The text so far."""
        self._raw: list[str] = []
        self._pending = ""
        self._begun = self._ended = False

    def take(self, arguments: str) -> str:
        """The text that a piece adds."""
        self._raw.append(arguments)
        if self._ended:
            return ""
        self._pending += arguments
        if not self._begun:
            begin = _BEGIN.match(self._pending)
            if begin is None:
                return ""
            self._begun, self._pending = True, self._pending[begin.end() :]
        return self._more()

    def end(self) -> str:
        """The rest: all of it if the arguments have another form than the tool's."""
        if self._begun or self._ended:
            return ""
        self._ended = True
        return self._add(_input_of("".join(self._raw)))

    def _more(self) -> str:
        match = _WHOLE.match(self._pending)
        whole = "" if match is None else match[0]
        rest = self._pending[len(whole) :]
        self._ended = rest.startswith('"')
        if not self._ended and (half := _HALF.search(whole)):
            whole = whole[: half.start()]
        self._pending = self._pending[len(whole) :]
        try:
            return self._add(_text(f'"{whole}"'.encode()))
        except (msgspec.DecodeError, UnicodeError):  # not JSON, such as a line break as it is
            return self._add(whole)

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
