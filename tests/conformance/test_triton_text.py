"""Models of text on NVIDIA's Triton, with the inputs of TensorRT-LLM's and of vLLM's."""

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from tests.conformance.recorded import conforms, every_feature
from tests.servers.shared import shared, triton_of_texts
from tests.servers.triton import Triton

pytestmark = pytest.mark.timeout(1800)  # the first run installs it

SYSTEMS = {
    "llm_api": "TensorRT-LLM on Triton, LLM API",
    "bls": "TensorRT-LLM on Triton, ensemble or BLS",
    "vllm": "vLLM on Triton",
}


@pytest.fixture(scope="module")
def running() -> Triton:
    return shared(triton_of_texts)


def subject(server: Triton, model: str) -> Subject:
    return Subject(
        system=SYSTEMS[model],
        version="Triton 2.51.0, a model with its signature",
        pool=pool({"name": "triton-generate", "chat_template": "chatml"}, f"http://{server.http}"),
        right=requests.chat(model),
        is_right=requests.has_text,
        stream=requests.chat(model, stream=True),
        pieces=3,
        mistake=requests.chat(model, temperature="warm"),
        signals=f"http://127.0.0.1:{server.ports.metrics}/metrics",
        order=model,
    )


@every_feature
@pytest.mark.parametrize("model", SYSTEMS)
async def test_conforms(running: Triton, model: str, feature: str) -> None:
    await conforms(subject(running, model), feature)
