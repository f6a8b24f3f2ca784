"""Requests that are wrong. What matters is that they are refused, and with which status."""

import json

from tests.servers.cases.inference import ALL_OUT, BOTH, BOTH_BINARY, EVERY, HALF, HALVES, INTS, ROW, SUM, of, packed
from tests.servers.exchange import HttpRequest, binary, infer, infer_binary, post, tensor

PATH = "/v2/models/add_sub/infer"


def _one(**changes: object) -> list[HttpRequest]:
    """The usual request with its first input changed."""
    return [infer("add_sub", {**BOTH[0], **changes}, BOTH[1])]


def _without(name: str) -> list[HttpRequest]:
    return [infer("add_sub", {key: value for key, value in BOTH[0].items() if key != name}, BOTH[1])]


def _number(datatype: str, value: str) -> list[HttpRequest]:
    """A value that its datatype cannot hold, or that JSON has no word for; all other inputs are right."""
    inputs = [{**one, "data": ["@", "@"]} if one["datatype"] == datatype else one for one in EVERY]
    head = json.dumps({"inputs": [*inputs, HALF], "outputs": ALL_OUT}).replace('"@"', value).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    return [HttpRequest("POST", "/v2/models/datatypes/infer", head + HALVES, headers)]


BAD_INPUT = {
    "no body": [HttpRequest("POST", PATH)],
    "no JSON": [post(PATH, b"{")],
    "JSON that is no object": [post(PATH, []), post(PATH, 3), post(PATH, "x")],
    "bytes that are no UTF-8": [post(PATH, b'{"id": "\xff"}')],
    "no inputs": [post(PATH, {}), infer("add_sub")],
    "inputs that are no list": [post(PATH, {"inputs": {}}), post(PATH, {"inputs": [3]})],
    "an id that is no text": [infer("add_sub", *BOTH, id=3)],
    "missing input": [infer("add_sub", BOTH[0])],
    "unknown input": [infer("add_sub", *BOTH, tensor("INPUT2", "INT32", [1, 16], ROW))],
    "an input twice": [infer("add_sub", *BOTH, BOTH[0])],
    "input without a name": _without("name"),
    "input without a datatype": _without("datatype"),
    "input without a shape": _without("shape"),
    "input without data": _without("data"),
    "unknown output": [infer("add_sub", *BOTH, outputs=[{"name": "OUTPUT9"}])],
    "an output twice": [infer("add_sub", *BOTH, outputs=[SUM, SUM])],
    "outputs that are no list": [infer("add_sub", *BOTH, outputs={})],
    "unknown datatype": _one(datatype="INT33"),
    "another datatype": _one(datatype="INT64"),
    "BF16 in JSON": _one(datatype="BF16"),
    "shape of another rank": _one(shape=[16]),
    "another shape": _one(shape=[1, 8], data=ROW[:8]),
    "shape with a negative size": _one(shape=[-1, 16]),
    "shape with a text": _one(shape=["1", 16]),
    "shape with a fraction": _one(shape=[1.5, 16]),
    "shape that is no list": _one(shape=16),
    "shape beyond 2^63": _one(shape=[2**63, 16]),
    "shape whose size overflows": _one(shape=[2**62, 16]),
    "too few elements": _one(data=ROW[:15]),
    "too many elements": _one(data=[*ROW, 0]),
    "ragged data": _one(data=[ROW[:8], ROW[8:], []]),
    "no rows": [infer("add_sub", *({**one, "shape": [0, 16], "data": []} for one in BOTH))],
    "a batch too large": [infer("add_sub", *({**one, "shape": [9, 16], "data": ROW * 9} for one in BOTH))],
    "batches of two sizes": [infer("add_sub", BOTH[0], {**BOTH[1], "shape": [2, 16], "data": ROW * 2})],
    "data that is no list": _one(data=3),
    "an object as data": _one(data={"a": 1}),
    "null in data": _one(data=[None, *ROW[1:]]),
    "a fraction for INT32": _one(data=[0.5, *ROW[1:]]),
    "a whole fraction for INT32": _one(data=[1.0, *ROW[1:]]),
    "a truth for INT32": _one(data=[True, *ROW[1:]]),
    "a text for INT32": _one(data=["1", *ROW[1:]]),
    "2^31 for INT32": _one(data=[2**31, *ROW[1:]]),
    "2^63 for INT32": _one(data=[2**63, *ROW[1:]]),
    "a thousand digits for INT32": _one(data=[10**1000, *ROW[1:]]),
    "256 for UINT8": _number("UINT8", "256"),
    "-1 for UINT64": _number("UINT64", "-1"),
    "2^64 for UINT64": _number("UINT64", str(2**64)),
    "2 for BOOL": _number("BOOL", "2"),
    "NaN for FP32": _number("FP32", "NaN"),
    "Infinity for FP64": _number("FP64", "Infinity"),
    "1e400 for FP64": _number("FP64", "1e400"),
    "1e39 for FP32": _number("FP32", "1e39"),
    "a text for FP32": _number("FP32", '"1"'),
    "a number for BYTES": [infer("text", tensor("TEXT", "BYTES", [1, 1], [3]))],
    "a lone surrogate for BYTES": [
        post(
            "/v2/models/text/infer", b'{"inputs":[{"name":"TEXT","datatype":"BYTES","shape":[1,1],"data":["\\ud800"]}]}'
        )
    ],
    "data nested 2000 deep": [
        post(
            PATH,
            b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":' + b"[" * 2000 + b"]" * 2000 + b"}]}",
        )
    ],
    "unknown model": [infer("nobody", *BOTH)],
    "unknown version": [post("/v2/models/add_sub/versions/9/infer", {"inputs": BOTH})],
    "binary_data_output that is no truth": [infer("add_sub", *BOTH, parameters={"binary_data_output": "yes"})],
    "parameters that are no object": [infer("add_sub", *BOTH, parameters=[])],
    "binary tensor too short": [infer_binary("add_sub", BOTH_BINARY, INTS + INTS[:60])],
    "binary tensor too long": [infer_binary("add_sub", BOTH_BINARY, INTS * 2 + b"\0")],
    "binary size that is not the shape's": [
        infer_binary("add_sub", [binary("INPUT0", "INT32", [1, 16], 60), BOTH_BINARY[1]], INTS + INTS)
    ],
    "negative binary size": [
        infer_binary("add_sub", [binary("INPUT0", "INT32", [1, 16], -64), BOTH_BINARY[1]], INTS * 2)
    ],
    "binary size of 2^63": [
        infer_binary("add_sub", [binary("INPUT0", "INT32", [1, 16], 2**63), BOTH_BINARY[1]], INTS * 2)
    ],
    "binary size as a text": [
        infer_binary("add_sub", [binary("INPUT0", "INT32", [1, 16], "64"), BOTH_BINARY[1]], INTS * 2)
    ],
    "binary size without the header": [post(PATH, {"inputs": BOTH_BINARY})],
    "data and a binary size": [
        infer_binary("add_sub", [{**BOTH[0], "parameters": {"binary_data_size": 64}}, BOTH_BINARY[1]], INTS * 2)
    ],
    "header length beyond the body": [infer_binary("add_sub", BOTH_BINARY, INTS * 2, length=10_000)],
    "header length inside the JSON": [infer_binary("add_sub", BOTH_BINARY, INTS * 2, length=10)],
    "negative header length": [infer_binary("add_sub", BOTH_BINARY, INTS * 2, length=-1)],
    "header length that is no number": [infer_binary("add_sub", BOTH_BINARY, INTS * 2, length="many")],
    "BYTES length past the end": [infer_binary("text", [binary("TEXT", "BYTES", [1, 1], 7)], b"\xff\0\0\0abc")],
    "BYTES with a piece of a length": [
        infer_binary("text", [binary("TEXT", "BYTES", [1, 1], 9)], packed(b"abc") + b"\0\0")
    ],
    "fewer BYTES than the shape has": [infer_binary("text", [binary("TEXT", "BYTES", [1, 2], 7)], packed(b"abc"))],
    "more BYTES than the shape has": [
        infer_binary("text", [binary("TEXT", "BYTES", [1, 1], 14)], packed(b"abc", b"def"))
    ],
    "classes that are no number": [infer("add_sub", *BOTH, outputs=[of("OUTPUT0", classification="many")])],
    "no classes": [infer("add_sub", *BOTH, outputs=[of("OUTPUT0", classification=0)])],
    "a model that raises": [infer("picky", tensor("X", "FP32", [1, 1], [-1]))],
    "a region of shared memory that is not there": [
        infer(
            "add_sub",
            {
                "name": "INPUT0",
                "datatype": "INT32",
                "shape": [1, 16],
                "parameters": {"shared_memory_region": "nowhere", "shared_memory_byte_size": 64},
            },
            BOTH[1],
        )
    ],
}
