"""Models of MLServer: sums, texts piece by piece, and what its codecs make of tensors."""

from collections.abc import AsyncIterator
from typing import Any

import pandas as pd
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, PandasCodec, StringCodec
from mlserver.errors import InferenceError
from mlserver.types import InferenceResponse


class AddSub(MLModel):
    async def predict(self, payload: Any) -> Any:
        if len(payload.inputs) != 2:
            raise InferenceError("it takes two inputs")
        one, other = (NumpyCodec.decode_input(tensor) for tensor in payload.inputs)
        outputs = [NumpyCodec.encode_output("OUTPUT0", one + other), NumpyCodec.encode_output("OUTPUT1", one - other)]
        return InferenceResponse(model_name=self.name, outputs=outputs)


class Words(MLModel):
    """Its answer is the text's words, one a response; a word `fail` is its end."""

    async def predict(self, payload: Any) -> Any:
        return self._encoded(" ".join(self._words(payload)))

    async def predict_stream(self, payloads: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for payload in payloads:
            for word in self._words(payload):
                if word == "fail":
                    raise RuntimeError("it failed")
                yield self._encoded(word)

    def _words(self, payload: Any) -> list[str]:
        return str(StringCodec.decode_input(payload.inputs[0])[0]).split()

    def _encoded(self, text: str) -> Any:
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("text", [text])])


class Frame(MLModel):
    """Takes a data frame by the codec that its request names."""

    async def predict(self, payload: Any) -> Any:
        frame = self.decode_request(payload, default_codec=PandasCodec)
        assert isinstance(frame, pd.DataFrame)
        made = pd.DataFrame({"ratio": frame["height"] / frame["weight"], "length": frame["name"].str.len()})
        return self.encode_response(made, default_codec=PandasCodec)


class Fails(MLModel):
    async def predict(self, payload: Any) -> Any:
        raise RuntimeError("a secret of the server's")
