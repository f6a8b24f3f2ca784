"""The sum and the difference, as a runtime of MLServer."""

from typing import Any

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class AddSub(MLModel):
    async def predict(self, payload: Any) -> Any:
        one, other = (NumpyCodec.decode_input(tensor) for tensor in payload.inputs)
        outputs = [NumpyCodec.encode_output("OUTPUT0", one + other), NumpyCodec.encode_output("OUTPUT1", one - other)]
        return InferenceResponse(model_name=self.name, outputs=outputs)
