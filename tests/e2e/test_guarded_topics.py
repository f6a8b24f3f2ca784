"""A guard of topics whose embeddings are those of the bundled model."""

import json
from pathlib import Path

import aiohttp
import pytest

from tests.support.processes import gateway
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(900)]
ADVICE = [
    "Which shares should I buy?",
    "Is this fund a good investment?",
    "How should I invest my savings?",
    "Will the price of gold rise?",
]
ABOUT = [
    "What stocks should I buy now?",
    "Should I put my money into this index fund?",
    "Where should I invest 5000 euros?",
]
OTHERS = ["How do I bake bread without yeast?", "Write a poem about the sea.", "Why does my Python loop never end?"]


async def test_texts_about_a_topic_are_blocked(tmp_path: Path) -> None:
    async with upstream("fine") as model:
        settings = {
            "pools": [
                {"name": "main", "endpoints": [f"{model.url}/v1"]},
                {"name": "vectors", "runtime": {"kind": "llm", "model": "bundled:all-minilm-l6-v2"}},
            ],
            "guards": [
                {
                    "name": "finance", "kind": "topics", "embed": "vectors", "on": ["prompt"], "timeout": "60s",
                    "deny": [{"name": "advice", "examples": ADVICE}],
                }
            ],
            "models": [
                {"name": "vectors", "routes": [{"to": "vectors"}]},
                {"name": "chat", "guards": ["finance"], "routes": [{"to": "main"}]},
            ],
            "tenants": [{"name": "acme", "models": ["chat"]}],
        }  # fmt: skip
        async with gateway(tmp_path, settings) as g:
            await g.printed("Ready.")
            headers = {"authorization": f"Bearer {await g.key()}"}
            async with aiohttp.ClientSession(headers=headers) as http:
                statuses = {}
                for text in (*ABOUT, *OTHERS):
                    body = {"model": "chat", "messages": [{"role": "user", "content": text}]}
                    async with http.post(f"{g.url}/v1/chat/completions", json=body) as response:
                        statuses[text] = response.status, json.loads(await response.text()).get("error")
        assert {text: status for text, (status, _) in statuses.items()} == {
            **dict.fromkeys(ABOUT, 400),
            **dict.fromkeys(OTHERS, 200),
        }
