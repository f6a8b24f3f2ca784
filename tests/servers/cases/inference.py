"""Requests that are right, in every form that the protocol has for them."""

import struct

import numpy as np

from tests.servers.exchange import binary, infer, infer_binary, post, tensor

ROW = list(range(16))
ROWS = [ROW, [3] * 16, [-5] * 16]
INTS = np.arange(16, dtype="<i4").tobytes()
BOTH = [tensor("INPUT0", "INT32", [1, 16], ROW), tensor("INPUT1", "INT32", [1, 16], [1] * 16)]
BOTH_BINARY = [binary("INPUT0", "INT32", [1, 16], 64), binary("INPUT1", "INT32", [1, 16], 64)]
SUM, DIFFERENCE = {"name": "OUTPUT0"}, {"name": "OUTPUT1"}


def packed(*texts: bytes) -> bytes:
    """BYTES in binary form."""
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def of(name: str, **parameters: object) -> dict[str, object]:
    """A requested output with parameters."""
    return {"name": name, "parameters": parameters}


KINDS = (
    *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64", "BYTES"),
)
NUMBERS = {
    "BOOL": [True, False],
    "UINT8": [0, 255],
    "UINT16": [0, 65535],
    "UINT32": [0, 2**32 - 1],
    "UINT64": [0, 2**64 - 1],
    "INT8": [-128, 127],
    "INT16": [-(2**15), 2**15 - 1],
    "INT32": [-(2**31), 2**31 - 1],
    "INT64": [-(2**63), 2**63 - 1],
    "FP32": [0.1, -3.4028234663852886e38],
    "FP64": [0.1, -1.7976931348623157e308],
    "BYTES": ["Grüße 🚀", ""],
}
HALVES = np.array([0.5, -65504], dtype="<f2").tobytes()
HALF = binary("IN_FP16", "FP16", [2], 4)
ALL_OUT = [of(f"OUT_{kind}", binary_data=kind == "FP16") for kind in KINDS]
NUMPY = {"BOOL": "?", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"} | {
    f"{sign}INT{bits}": f"<{sign.lower() or 'i'}{bits // 8}" for sign in ("", "U") for bits in (8, 16, 32, 64)
}
EVERY = [tensor(f"IN_{kind}", kind, [2], values) for kind, values in NUMBERS.items()]
BLOBS = {kind: np.array(NUMBERS.get(kind, [0.5, -65504]), dtype=NUMPY[kind]).tobytes() for kind in NUMPY}
BLOBS["BYTES"] = packed("Grüße 🚀".encode(), b"")

INFERENCE = {
    "flat data": [infer("add_sub", *BOTH)],
    "nested data": [
        infer("add_sub", tensor("INPUT0", "INT32", [3, 16], ROWS), tensor("INPUT1", "INT32", [3, 16], ROWS))
    ],
    "data in two halves": [infer("add_sub", tensor("INPUT0", "INT32", [1, 16], [ROW[:8], ROW[8:]]), BOTH[1])],
    "an id": [infer("add_sub", *BOTH, id="a name")],
    "inputs in the other order": [infer("add_sub", *reversed(BOTH))],
    "one output": [infer("add_sub", *BOTH, outputs=[DIFFERENCE])],
    "outputs in the other order": [infer("add_sub", *BOTH, outputs=[DIFFERENCE, SUM])],
    "no outputs named": [infer("add_sub", *BOTH, outputs=[])],
    "a full batch": [infer("add_sub", *(tensor(f"INPUT{i}", "INT32", [8, 16], [ROW] * 8) for i in (0, 1)))],
    "a version": [post("/v2/models/add_sub/versions/1/infer", {"inputs": BOTH})],
    "parameters nobody knows": [infer("add_sub", *BOTH, parameters={"colour": "blue", "level": 3, "deep": 0.5})],
    "members nobody knows": [infer("add_sub", *BOTH, colour="blue")],
    "a priority and a timeout": [infer("add_sub", *BOTH, parameters={"priority": 1, "timeout": 5_000_000})],
    "FP32 of any length": [
        infer("add_sub_any", *(tensor(f"INPUT{i}", "FP32", [2, 3], [[0.5, -1.25, 1e-7]] * 2) for i in (0, 1)))
    ],
    "whole numbers for FP32": [infer("add_sub_any", *(tensor(f"INPUT{i}", "FP32", [1, 2], [1, -2]) for i in (0, 1)))],
    "no elements": [infer("add_sub_any", *(tensor(f"INPUT{i}", "FP32", [1, 0], []) for i in (0, 1)))],
    "text": [infer("text", tensor("TEXT", "BYTES", [2, 2], [["a", "Grüße"], ["", '"\\\n\u0000']]))],
    "every datatype in JSON": [infer_binary("datatypes", [*EVERY, HALF], HALVES, outputs=ALL_OUT)],
    "every datatype in binary": [
        infer_binary(
            "datatypes",
            [binary(f"IN_{kind}", kind, [2], len(blob)) for kind, blob in BLOBS.items()],
            b"".join(BLOBS.values()),
            parameters={"binary_data_output": True},
        )
    ],
    "binary in, JSON out": [infer_binary("add_sub", BOTH_BINARY, INTS * 2)],
    "JSON in, binary out": [infer("add_sub", *BOTH, parameters={"binary_data_output": True})],
    "one input in binary": [infer_binary("add_sub", [BOTH_BINARY[0], BOTH[1]], INTS)],
    "one output in binary": [
        infer_binary("add_sub", BOTH_BINARY, INTS * 2, outputs=[SUM, of("OUTPUT1", binary_data=True)])
    ],
    "an output that is not binary after all": [
        infer(
            "add_sub",
            *BOTH,
            parameters={"binary_data_output": True},
            outputs=[of("OUTPUT0", binary_data=False), DIFFERENCE],
        )
    ],
    "binary bytes that are no UTF-8": [
        infer_binary(
            "text",
            [binary("TEXT", "BYTES", [1, 2], 14)],
            packed(b"\xff\x00\xfe", b"abc"),
            outputs=[of("SAME", binary_data=True)],
        )
    ],
    "bytes that are no UTF-8, out as JSON": [
        infer_binary("text", [binary("TEXT", "BYTES", [1, 1], 7)], packed(b"\xff\x00\xfe"))
    ],
    "classes": [infer("add_sub", *BOTH, outputs=[of("OUTPUT0", classification=3)])],
    "classes of FP32 in binary": [
        infer(
            "add_sub_any",
            *(tensor(f"INPUT{i}", "FP32", [2, 3], [[0.5, -1.25, 2], [3, 1, 2]]) for i in (0, 1)),
            outputs=[of("OUTPUT0", classification=2, binary_data=True)],
        )
    ],
    "more classes than there are": [
        infer(
            "add_sub_any",
            *(tensor(f"INPUT{i}", "FP32", [1, 2], [1, 2]) for i in (0, 1)),
            outputs=[of("OUTPUT0", classification=9)],
        )
    ],
}
