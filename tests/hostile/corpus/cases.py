"""The files of the corpus, read."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
CANARY = b"GET /smuggled HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
"""The request that follows each case of HTTP/1.1 on its connection."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
KINDS = {
    "DATA": 0, "HEADERS": 1, "PRIORITY": 2, "RST_STREAM": 3, "SETTINGS": 4, "PUSH_PROMISE": 5, "PING": 6, "GOAWAY": 7,
    "WINDOW_UPDATE": 8, "CONTINUATION": 9,
}  # fmt: skip
REQUEST = {
    ":method": "POST", ":scheme": "http", ":path": "/headrace.corpus/None", ":authority": "x", "te": "trailers",
    "content-type": "application/grpc",
}  # fmt: skip
"""The head of a call of gRPC, which is also a request for a path that does not exist."""


@dataclass(frozen=True)
class Case:
    """Bytes of one connection, and how it must end."""

    file: str
    name: str
    why: str
    sent: bytes
    expect: str
    status: int | None = None
    """HTTP/1.1: the status of the refusal; any error of a client or server when absent."""
    in_body: bool = False
    """HTTP/1.1: the error is in a body, so that a server may answer with any error before it reads that far."""
    body: bytes = b""
    """HTTP/1.1: the body that the handler reads."""
    code: int | None = None
    """HTTP/2: the error code that RFC 9113 names; other codes are right, too."""

    @property
    def id(self) -> str:
        return f"{self.file}: {self.name}"


@cache
def cases(protocol: str) -> tuple[Case, ...]:
    """All cases of `http1` or `http2`."""
    return tuple(case for path in sorted((FOLDER / protocol).glob("*.yaml")) for case in _read(path, protocol))


def _read(path: Path, protocol: str) -> list[Case]:
    written = yaml.safe_load(path.read_text())
    common = {key: value for key, value in written.items() if key != "cases"}
    return [_case(path.stem, protocol, {**common, **one}) for one in written["cases"]]


def _case(file: str, protocol: str, written: dict[str, Any]) -> Case:
    sent, body = written.pop("sent"), written.pop("body", "")
    data = text(sent) if protocol == "http1" else frames(sent)
    return Case(file, sent=data, body=body.encode("latin-1"), **written)


def text(written: Any) -> bytes:
    """A string, whose characters are bytes, or a list of strings and of `{repeat: …, times: …}`."""
    if isinstance(written, str):
        return written.encode("latin-1")
    if isinstance(written, dict):
        return text(written["repeat"]) * int(written["times"])
    return b"".join(map(text, written))


def frames(written: list[Any], stream: int = 0) -> bytes:
    """Frames and raw bytes; `{repeat: [frames], times: N, step: S}` adds S to the stream of each further round."""
    joined = bytearray()
    for one in written:
        if one == "greeting":
            joined += PREFACE + _frame(KINDS["SETTINGS"], 0, 0, b"")
        elif "repeat" in one:
            if step := one.get("step", 0):
                for i in range(one["times"]):
                    joined += frames(one["repeat"], stream + i * step)
            else:
                joined += frames(one["repeat"], stream) * one["times"]
        elif "raw" in one:
            joined += text(one["raw"])
        else:
            kind = KINDS.get(one["frame"], one["frame"])
            if "payload" not in one:  # a repeated frame has the same one in each round
                one["payload"] = _payload(one)
            joined += _frame(kind, one.get("flags", 0), one.get("stream", 0) + stream, one["payload"])
    return bytes(joined)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _payload(one: dict[str, Any]) -> bytes:
    """`hex`, then zeros for `zeros`, then a head block: `request` is the usual one with changes, `fields` is a list."""
    payload = bytes.fromhex(str(one.get("hex", ""))) + bytes(one.get("zeros", 0))
    if "request" in one:
        changed = {**REQUEST, **(one["request"] or {})}
        payload += block([[name, value] for name, value in changed.items() if value is not None])
    return payload + block(one.get("fields", []))


def block(fields: list[list[str]]) -> bytes:
    """Fields as HPACK writes them without a table and without compression."""
    return b"".join(b"\0" + _string(name) + _string(str(value)) for name, value in fields)


def _string(written: str) -> bytes:
    data = written.encode("latin-1")
    size, head = len(data), b""
    if size < 127:
        return bytes([size]) + data
    size, head = size - 127, b"\x7f"
    while size >= 128:
        size, head = size >> 7, head + bytes([size & 127 | 128])
    return head + bytes([size]) + data
