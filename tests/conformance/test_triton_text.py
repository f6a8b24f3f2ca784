"""Models of text on NVIDIA's Triton, with the inputs of TensorRT-LLM's and of vLLM's."""

import pytest

from adapters.conformance.subject import Subject, pool
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import chatting
from tests.servers.shared import shared, triton_of_texts
from tests.servers.triton import Triton

SYSTEMS = {
    "llm_api": "TensorRT-LLM on Triton, LLM API",
    "bls": "TensorRT-LLM on Triton, ensemble or BLS",
    "vllm": "vLLM on Triton",
}


def subject(server: Triton, model: str) -> Subject:
    return chatting(
        model,
        system=SYSTEMS[model],
        version="Triton 2.51.0, a model with its signature",
        pool=pool({"name": "triton-generate", "chat_template": "chatml"}, f"http://{server.http}"),
        long=None,
        lacks={},
        signals=f"http://127.0.0.1:{server.ports.metrics}/metrics",
        order=model,
    )


@every_feature
@pytest.mark.parametrize("model", SYSTEMS)
async def test_conforms(model: str, feature: str) -> None:
    await conforms(subject(shared(triton_of_texts), model), feature)
