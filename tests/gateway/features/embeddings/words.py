"""A tokenizer of a few words, and a model whose vectors are known: of token t in a row of n it is (t, n, 1)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from adapters.base import Answer
from adapters.call import Call
from adapters.fake import FakeAdapter, Script
from adapters.requests import InferRequest, ModelQuery, ModelRequest
from adapters.tensors import Inferred, Tensor
from adapters.types import OIP_GRPC, Usage
from adapters.wire.oip.proto_responses import encode_infer_response

WORDS = {"[CLS]": 0, "[SEP]": 1, "[UNK]": 2, "a": 3, "b": 4, "c": 5, "d": 6}


def tokenizer_file(folder: Path) -> Path:
    made = Tokenizer(WordLevel(WORDS, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)])
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def section(folder: Path, **fields: Any) -> dict[str, Any]:
    """The `embeddings` of a model."""
    return {"tokenizer": str(tokenizer_file(folder)), "normalize": False, **fields}


class WordModel(FakeAdapter):
    """Computes the vectors that the module's docstring defines; its inputs are `names` with a datatype each."""

    def __init__(self, latency: float = 0.0, **names: str) -> None:
        super().__init__(Script(latency=latency))
        self.names = names or {"input_ids": "INT64", "attention_mask": "INT64"}
        self.batches: list[InferRequest] = []
        self.pooled = False
        self.garbage = False

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, ModelQuery):
            inputs = [{"name": name, "datatype": kind, "shape": [-1, -1]} for name, kind in self.names.items()]
            return Answer(content_type="application/json", body=_json({"name": "m", "inputs": inputs}))
        await super().call(request, call)
        assert isinstance(request, InferRequest)
        self.batches.append(request)
        body = encode_infer_response(Inferred("m", "1", "", {}, [self._output(request)]))
        usage = Usage(rows=request.rows, device_ms=2.0)
        return Answer(content_type="application/grpc", body=body, usage=usage, form=OIP_GRPC)

    def _output(self, request: InferRequest) -> Tensor:
        given = {tensor.name: tensor for tensor in request.inference.inputs}
        tensor = given["input_ids"]
        ids = np.frombuffer(tensor.data, "<i4" if tensor.datatype == "INT32" else "<i8").reshape(tensor.shape)
        if self.garbage:
            return Tensor("v", "FP32", (1,), b"\0\0\0\0")
        values = np.stack([ids, np.full_like(ids, ids.shape[1]), np.ones_like(ids)], axis=-1).astype("<f4")
        if self.pooled:
            values = values[:, 0]
        return Tensor("last_hidden_state", "FP32", values.shape, values.tobytes())


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
