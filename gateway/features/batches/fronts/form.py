"""An uploaded `multipart/form-data` (RFC 7578), parsed as it arrives: the content of its file is never whole in
memory."""

import re
from collections.abc import Mapping

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from adapters.errors import CallerError

MAX_FIELD = 4096
MAX_FIELDS = 32
MAX_HEAD = 16 * 1024
LONGEST_NAME = 255
_HARMFUL = re.compile(r"[\x00-\x1f\x7f]")


class UploadForm:
    """`feed` the pieces of the body, each of which returns bytes of the file, then `finish`."""

    def __init__(self, content_type: str, file_field: str = "file") -> None:
        """Raises `CallerError` for a body that is no form."""
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary:
            message = "Send the file as `multipart/form-data` with the fields `file` and `purpose`."
            raise CallerError(message, code="unsupported_media_type")
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        """The name of the file, without folders; None before the file has begun."""
        self._file_field = file_field
        self._file = list[bytes]()
        self._name = ""
        self._value = bytearray()
        self._header = [bytearray(), bytearray()]
        self._head_size = 0
        self._in_file = False
        self._ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._part_begins,
                "on_header_field": lambda data, start, end: self._take_header(0, data[start:end]),
                "on_header_value": lambda data, start, end: self._take_header(1, data[start:end]),
                "on_header_end": self._header_ends,
                "on_part_data": self._take_data,
                "on_part_end": self._part_ends,
                "on_end": self._end,
            },
        )

    def feed(self, piece: bytes) -> bytes:
        """Parse a piece of the body. Raises `CallerError`."""
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise _malformed(str(error)) from None
        data, self._file = b"".join(self._file), []
        return data

    def finish(self) -> Mapping[str, str]:
        """The fields of a form that is whole and has a file. Raises `CallerError`."""
        if not self._ended:
            raise _malformed("it has no end")
        if self.filename is None:
            raise CallerError("The form has no field `file`.", param="file")
        return self.fields

    # ── events of the parser ──────────────────────────────────────────────────────────────────────────

    def _part_begins(self) -> None:
        self._name, self._value, self._in_file = "", bytearray(), False
        self._header, self._head_size = [bytearray(), bytearray()], 0

    def _take_header(self, part: int, data: bytes) -> None:
        self._head_size += len(data)
        if self._head_size > MAX_HEAD:
            raise _malformed("the head of a part is too long")
        self._header[part] += data

    def _header_ends(self) -> None:
        name, value = bytes(self._header[0]).lower(), bytes(self._header[1])
        self._header = [bytearray(), bytearray()]
        if name != b"content-disposition":
            return
        _, options = parse_options_header(value)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        if self._name == self._file_field:
            if self.filename is not None:
                raise CallerError("The form has more than one file: upload each alone.", param=self._file_field)
            self._in_file = True
            self.filename = file_name(options.get(b"filename", b"").decode("utf-8", "replace"))

    def _take_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._file.append(data[start:end])
        elif len(self._value) + end - start > MAX_FIELD:
            raise CallerError(f"The field `{self._name[:64]}` is too long.", param=self._name[:64])
        else:
            self._value += data[start:end]

    def _part_ends(self) -> None:
        if self._in_file:
            return
        if len(self.fields) >= MAX_FIELDS:
            raise _malformed("it has too many fields")
        self.fields[self._name] = self._value.decode("utf-8", "replace")

    def _end(self) -> None:
        self._ended = True


def file_name(text: str) -> str:
    """The last part of a path, without control characters. No file of the storage has this name."""
    name = _HARMFUL.sub("", re.split(r"[/\\]", text)[-1])[:LONGEST_NAME]
    return name if name.strip(". ") else "file"


def _malformed(reason: str) -> CallerError:
    return CallerError(f"The form is malformed: {reason}.", code="malformed_request")
