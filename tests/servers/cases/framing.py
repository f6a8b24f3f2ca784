"""Compression, and requests that are one tensor and nothing else."""

import gzip
import json
import zlib

import numpy as np

from tests.servers.cases.inference import BOTH, packed
from tests.servers.exchange import HttpRequest, infer

PATH = "/v2/models/add_sub/infer"
BODY = json.dumps({"inputs": BOTH}).encode()
NINE = np.array([9], dtype="<f4").tobytes()


def _coded(coding: str, body: bytes) -> list[HttpRequest]:
    return [HttpRequest("POST", PATH, body, {"Content-Encoding": coding})]


def _accepting(coding: str) -> list[HttpRequest]:
    return [HttpRequest("POST", PATH, BODY, {"Accept-Encoding": coding})]


def _raw(model: str, body: bytes) -> list[HttpRequest]:
    return [HttpRequest("POST", f"/v2/models/{model}/infer", body, {"Inference-Header-Content-Length": "0"})]


FRAMING = {
    "gzip in": _coded("gzip", gzip.compress(BODY)),
    "deflate in": _coded("deflate", zlib.compress(BODY)),
    "identity in": _coded("identity", BODY),
    "an unknown coding in": _coded("middle-out", BODY),
    "gzip that is none": _coded("gzip", BODY),
    "gzip that is cut off": _coded("gzip", gzip.compress(BODY)[:-12]),
    "gzip out": _accepting("gzip"),
    "deflate out": _accepting("deflate"),
    "gzip or deflate out": _accepting("gzip, deflate"),
    "an unknown coding out": _accepting("br"),
    "raw FP32": _raw("picky", NINE),
    "raw bytes": _raw("text", packed(b"abc")),
    "raw, of the wrong size": _raw("picky", NINE + b"\0"),
    "raw, to a model with two inputs": _raw("add_sub", NINE),
    "raw, empty": _raw("picky", b""),
    "another content type": [HttpRequest("POST", PATH, BODY, {"Content-Type": "text/plain"})],
    "an answer and another request": [infer("add_sub", *BOTH), infer("add_sub", *BOTH)],
}
