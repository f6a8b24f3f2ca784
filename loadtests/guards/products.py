"""The gateways and their own filters, which need no other service, as their documentation configures them for streams.

`masks` replaces a span, and `blocks` refuses the answer. Portkey masks by a check of the same kind that it blocks with.
"""

import functools
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from loadtests.gateways.headrace import TENANT, create_key
from loadtests.gateways.replies import MODEL
from loadtests.guards.corpus import PATTERNS, SPANS
from loadtests.peers.litellm import LITELLM, LITELLM_KEY
from loadtests.peers.portkey import install_portkey
from loadtests.servers import Gateway, Launch, Site, free_port
from loadtests.venvs import ensure

WORDS = [span for kind, span in SPANS.items() if kind not in PATTERNS]
DONE = "[removed]"


@dataclass(frozen=True, slots=True)
class Mode:
    """A setting of a product: further fields of a request, or further headers."""

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    model: str = MODEL
    doors: tuple[str, ...] = ("chat", "messages", "responses")


@dataclass(frozen=True, slots=True)
class Product:
    """A gateway and the settings in which it is measured."""

    gateway: Gateway
    modes: tuple[Mode, ...]


# ── Headrace ──────────────────────────────────────────────────────────────────────────────────────────


def headrace_config(site: Site, admin_port: int) -> dict[str, Any]:
    """A model without guards, one that masks, and one that blocks."""
    guards = [
        guard
        for action in ("mask", "block")
        for guard in (
            {"name": f"words-{action}", "kind": "words", "words": WORDS, "action": action, "on": ["answer"]},
            {
                "name": f"patterns-{action}", "kind": "pattern", "patterns": list(PATTERNS.values()),
                "action": action, "on": ["answer"],
            },
        )
    ]  # fmt: skip
    models = [
        {"name": name, "guards": guarded, "routes": [{"to": "main"}]}
        for name, guarded in (
            (MODEL, []),
            ("masks", ["words-mask", "patterns-mask"]),
            ("blocks", ["words-block", "patterns-block"]),
        )
    ]
    return {
        "version": 1,
        "listen": {"http": f"127.0.0.1:{site.port}", "admin": f"127.0.0.1:{admin_port}"},
        "state": {"database": f"sqlite:///{site.folder}/state.db"},
        "pools": [{"name": "main", "endpoints": [f"http://{site.endpoints[0]}/v1"], "model": MODEL}],
        "guards": guards,
        "models": models,
        "tenants": [{"name": TENANT, "models": ["*"]}],
    }


def _launch_headrace(site: Site, python: Path) -> Launch:
    file = site.folder / "headrace.yaml"
    file.write_text(yaml.safe_dump(headrace_config(site, free_port()), sort_keys=False))
    return Launch([str(python), "-m", "gateway", "serve", "--config", str(file)], create_key(python, file))


# ── LiteLLM ───────────────────────────────────────────────────────────────────────────────────────────


def litellm_config(site: Site) -> dict[str, Any]:
    """Its content filter after the call, which holds back the last characters of a stream, and patterns by name."""

    def guard(action: str) -> dict[str, Any]:
        patterns = [
            {"pattern_type": "regex", "name": name, "pattern": pattern, "action": action}
            for name, pattern in PATTERNS.items()
        ]
        words = [{"keyword": word, "action": action} for word in WORDS]
        parameters = {"guardrail": "litellm_content_filter", "mode": "post_call", "patterns": patterns}
        return {"guardrail_name": action.lower(), "litellm_params": {**parameters, "blocked_words": words}}

    # A server of chats alone: Messages and Responses become chats, as they do in ours.
    parameters = {"model": f"lm_studio/{MODEL}", "api_base": f"http://{site.endpoints[0]}/v1", "api_key": "none"}
    return {
        "model_list": [{"model_name": MODEL, "litellm_params": parameters}],
        "guardrails": [guard("MASK"), guard("BLOCK")],
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
        "general_settings": {"master_key": LITELLM_KEY},
    }


def _launch_litellm(site: Site, venv: Path) -> Launch:
    config = site.folder / "litellm.yaml"
    config.write_text(yaml.safe_dump(litellm_config(site)))
    options = ["--host", "127.0.0.1", "--port", str(site.port), "--num_workers", "1", "--telemetry", "False"]
    env = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return Launch([str(venv / "bin/litellm"), "--config", str(config), *options], LITELLM_KEY, env)


# ── Portkey ───────────────────────────────────────────────────────────────────────────────────────────


def portkey_config(upstream: str, checks: list[dict[str, Any]]) -> dict[str, str]:
    """The headers of a request with guards of answers."""
    target = {"provider": "openai", "custom_host": f"http://{upstream}/v1", "output_guardrails": checks}
    return {"x-portkey-config": json.dumps(target)}


def portkey_masks() -> list[dict[str, Any]]:
    """Its replacements by regular expressions."""
    return [
        {"default.regexReplace": {"rule": rule, "redactText": DONE}, "type": "mutator"}
        for rule in [*(rf"\b{word}\b" for word in WORDS), *PATTERNS.values()]
    ]


def portkey_blocks() -> list[dict[str, Any]]:
    """Its checks of words and of regular expressions, which deny."""
    return [
        {"default.contains": {"operator": "none", "words": WORDS}, "deny": True},
        *({"default.regexMatch": {"rule": rule, "not": True}, "deny": True} for rule in PATTERNS.values()),
    ]


def _launch_portkey(site: Site, folder: Path) -> Launch:
    server = folder / "node_modules/@portkey-ai/gateway/build/start-server.js"
    node = shutil.which("node") or "node"
    headers = portkey_config(site.endpoints[0], [])
    return Launch([node, str(server), f"--port={site.port}", "--headless"], headers=headers)


def products(upstream: int) -> list[Product]:
    """All of them before a server on this port."""
    address = f"127.0.0.1:{upstream}"
    chats = ("chat",)  # its other APIs pass to servers that have them
    return [
        Product(
            Gateway("headrace", lambda: Path(sys.executable), _launch_headrace),
            (Mode("masks", model="masks"), Mode("blocks", model="blocks")),
        ),
        Product(
            Gateway("litellm", functools.partial(ensure, "litellm", LITELLM), _launch_litellm),
            (Mode("masks", {"guardrails": ["mask"]}), Mode("blocks", {"guardrails": ["block"]})),
        ),
        Product(
            Gateway("portkey", install_portkey, _launch_portkey),
            (
                Mode("masks", headers=portkey_config(address, portkey_masks()), doors=chats),
                Mode("blocks", headers=portkey_config(address, portkey_blocks()), doors=chats),
            ),
        ),
    ]
