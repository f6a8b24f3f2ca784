"""MLServer's codecs as its clients use them, before an address: `mlserver_client.py HTTP KEY`."""

import json
import sys
import urllib.request
from typing import Any

import numpy as np
import pandas as pd
from mlserver.codecs import NumpyCodec, NumpyRequestCodec, PandasCodec, StringRequestCodec
from mlserver.types import InferenceRequest, InferenceResponse


def infer(url: str, key: str, model: str, request: InferenceRequest) -> InferenceResponse:
    fields = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    body = json.dumps(request.model_dump(exclude_none=True), default=bytes.decode).encode()
    call = urllib.request.Request(f"{url}/v2/models/{model}/infer", body, fields)
    with urllib.request.urlopen(call, timeout=60) as response:
        return InferenceResponse.model_validate_json(response.read())


def main(url: str, key: str) -> None:
    rows = np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]])
    response = infer(url, key, "iris", NumpyRequestCodec.encode_request(rows))
    assert NumpyRequestCodec.decode_response(response).flatten().tolist() == [0, 2], response
    names = pd.Series(["ann", "süßer"], dtype=object)  # newer kinds of text are not known to it
    frame = pd.DataFrame({"height": [180.0, 160.0], "weight": [90.0, 40.0], "name": names})
    answer: Any = PandasCodec.decode_response(
        infer(url, key, "frame", PandasCodec.encode_request(frame, use_bytes=False))
    )
    assert answer["ratio"].tolist() == [2.0, 4.0], answer
    assert answer["length"].tolist() == [3, 5], answer
    response = infer(url, key, "words", StringRequestCodec.encode_request(["one two"], use_bytes=False))
    assert StringRequestCodec.decode_response(response) == ["one two"], response
    ones = InferenceRequest(inputs=[NumpyCodec.encode_input(f"INPUT{i}", np.ones((1, 16), np.int32)) for i in (0, 1)])
    for model in ("mlserver", "kserve", "bento"):
        sums = {one.name: NumpyCodec.decode_output(one) for one in infer(url, key, model, ones).outputs}
        assert (sums["OUTPUT0"] == 2).all(), (model, sums)
    print("all right")


if __name__ == "__main__":
    main(*sys.argv[1:])
