"""Adapters of the bundled engine, by the models of the gateway's file."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from safetensors.torch import save_file

from runtimes.llm.weights.loader import open_checkpoint
from runtimes.llm.weights.store import resolve
from tests.support.processes import GatewayProcess, gateway

pytestmark = pytest.mark.timeout(1800)
MODEL = "bundled:smollm2-135m-instruct"


def write_adapter(folder: Path, seed: int, layers: int) -> str:
    """Random numbers for the values of every layer, in PEFT's files."""
    shape = open_checkpoint(resolve(MODEL, progress=False)).adapter_base.config
    random = torch.Generator().manual_seed(seed)
    folder.mkdir()
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["v_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    tensors = {}
    for index in range(layers):
        module = f"base_model.model.model.layers.{index}.self_attn.v_proj"
        tensors[f"{module}.lora_A.weight"] = torch.randn(8, shape.hidden_size, generator=random) / 8
        tensors[f"{module}.lora_B.weight"] = torch.randn(shape.num_kv_heads * shape.head_dim, 8, generator=random) / 8
    save_file(tensors, folder / "adapter_model.safetensors")
    return str(folder)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    adapters = {name: write_adapter(tmp_path / name, seed, 30) for seed, name in enumerate(("red", "blue"))}
    adapters["deep"] = write_adapter(tmp_path / "deep", 0, 31)
    runtime = {"kind": "llm", "model": MODEL, "max_model_len": 512, "adapters": adapters, "max_adapters": 1}
    configuration: dict[str, Any] = {
        "pools": [{"name": "small", "runtime": runtime}],
        "models": [
            {"name": "chat", "routes": [{"to": "small"}]},
            {"name": "red", "aliases": ["crimson"], "routes": [{"to": "small"}]},
            {"name": "sky", "routes": [{"to": "small", "rewrite": {"model": "blue"}}]},
            {"name": "deep", "routes": [{"to": "small"}]},
        ],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    async with gateway(tmp_path, configuration) as made:
        await made.printed("Ready.")
        yield made
        await made.until_idle()


async def test_a_model_of_the_file_selects_an_adapter(running: GatewayProcess) -> None:
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=await running.key(), max_retries=0) as client:

        async def answered(model: str, **how: Any) -> str:
            answer: Any = await client.completions.create(
                model=model, prompt="The river", max_tokens=24, temperature=0, **how
            )
            if not how:
                assert answer.model == {"chat": "small", "sky": "blue"}.get(model, "red")
                return str(answer.choices[0].text)
            return "".join([str(chunk.choices[0].text) async for chunk in answer if chunk.choices])

        given = {name: await answered(name) for name in ("chat", "red", "sky")}
        assert len(set(given.values())) == 3
        for name, text in given.items():  # each evicts the one before
            assert await answered(name, stream=True) == text
        assert await answered("crimson") == given["red"]
        with pytest.raises(openai.BadRequestError) as refused:
            await answered("deep")
        message = str(refused.value)
        assert "The adapter `deep` cannot be loaded: adapter_model.safetensors: tensor" in message
        assert "layers.30.self_attn.v_proj.lora_A.weight is of a module that this model does not have" in message
        assert await answered("chat") == given["chat"]
