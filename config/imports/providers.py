"""The hosted APIs and servers that other gateways name, as pools: address, protocol, and the variable of the key."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Provider(NamedTuple):
    """One provider, or one kind of server."""

    url: str = ""
    """Its address; empty if every customer has another."""
    key: str = ""
    """The environment variable in which its clients expect the key; empty for servers without one."""
    protocol: str | Mapping[str, Any] = "openai"
    """The protocol of the pool."""
    local: bool = False
    """Whether it is a server of one's own, whose health can be checked."""
    passes: tuple[str, ...] = ()
    """Calls beyond chats, completions and embeddings."""


def _family(dialect: str, **options: Any) -> dict[str, Any]:
    return {"name": "openai", "dialect": dialect, **options}


def _rooted(root: str) -> dict[str, Any]:
    return {"name": "openai", "root": root}


_OPENAI = Provider(
    "https://api.openai.com",
    "OPENAI_API_KEY",
    _family("openai", responses=True),
    passes=("audio", "images", "moderations"),
)
_TOGETHER = Provider("https://api.together.xyz/v1", "TOGETHERAI_API_KEY", passes=("rerank",))
_COHERE = Provider("https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY")
_ZAI = Provider("https://api.z.ai", "ZAI_API_KEY", _rooted("/api/paas/v4"))
_VLLM = Provider(key="HOSTED_VLLM_API_KEY", protocol=_family("vllm"), local=True, passes=("rerank", "score"))
_OWN = Provider(local=True)
_OLLAMA = Provider("http://localhost:11434", protocol=_family("ollama"), local=True)
_FIREWORKS = Provider("https://api.fireworks.ai/inference/v1", "FIREWORKS_AI_API_KEY")

PROVIDERS: Mapping[str, Provider] = {
    "openai": _OPENAI,
    "anthropic": Provider("https://api.anthropic.com", "ANTHROPIC_API_KEY", "anthropic"),
    "gemini": Provider("https://generativelanguage.googleapis.com", "GEMINI_API_KEY", _family("gemini")),
    "mistral": Provider("https://api.mistral.ai", "MISTRAL_API_KEY", _family("mistral")),
    "codestral": Provider("https://codestral.mistral.ai", "CODESTRAL_API_KEY", _family("mistral")),
    "groq": Provider("https://api.groq.com", "GROQ_API_KEY", _family("groq"), passes=("audio",)),
    "deepseek": Provider("https://api.deepseek.com", "DEEPSEEK_API_KEY"),
    "xai": Provider("https://api.x.ai", "XAI_API_KEY"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together_ai": _TOGETHER,
    "fireworks_ai": _FIREWORKS,
    "cerebras": Provider("https://api.cerebras.ai", "CEREBRAS_API_KEY"),
    "perplexity": Provider("https://api.perplexity.ai", "PERPLEXITYAI_API_KEY", _rooted("/")),
    "cohere": _COHERE,
    "deepinfra": Provider("https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    "sambanova": Provider("https://api.sambanova.ai", "SAMBANOVA_API_KEY"),
    "nvidia_nim": Provider("https://integrate.api.nvidia.com", "NVIDIA_NIM_API_KEY"),
    "github": Provider("https://models.github.ai", "GITHUB_API_KEY", _rooted("/inference")),
    "huggingface": Provider("https://router.huggingface.co", "HF_TOKEN"),
    "databricks": Provider(key="DATABRICKS_API_KEY"),
    "moonshot": Provider("https://api.moonshot.ai", "MOONSHOT_API_KEY"),
    "zai": _ZAI,
    "dashscope": Provider("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    "hyperbolic": Provider("https://api.hyperbolic.xyz", "HYPERBOLIC_API_KEY"),
    "nebius": Provider("https://api.studio.nebius.ai", "NEBIUS_API_KEY"),
    "novita": Provider("https://api.novita.ai", "NOVITA_API_KEY", _rooted("/v3/openai")),
    "minimax": Provider("https://api.minimax.io", "MINIMAX_API_KEY"),
    "voyage": Provider("https://api.voyageai.com", "VOYAGE_API_KEY", passes=("rerank",)),
    "jina_ai": Provider("https://api.jina.ai", "JINA_AI_API_KEY", passes=("rerank",)),
    "meta_llama": Provider("https://api.llama.com", "LLAMA_API_KEY", _rooted("/compat/v1")),
    "volcengine": Provider("https://ark.cn-beijing.volces.com", "VOLCENGINE_API_KEY", _rooted("/api/v3")),
    "vercel_ai_gateway": Provider("https://ai-gateway.vercel.sh", "VERCEL_AI_GATEWAY_API_KEY"),
    "ollama": _OLLAMA,
    "hosted_vllm": _VLLM,
    "lm_studio": Provider("http://localhost:1234", "LM_STUDIO_API_KEY", _family("lm-studio"), local=True),
    "llamafile": Provider("http://localhost:8080", protocol=_family("llama.cpp"), local=True),
    "infinity": Provider(protocol="openai", local=True, passes=("rerank",)),
    "xinference": Provider(key="XINFERENCE_API_KEY", local=True),
    "litellm_proxy": Provider(key="LITELLM_PROXY_API_KEY", passes=("audio", "images", "moderations", "rerank")),
    "docker_model_runner": Provider("http://localhost:12434/engines/llama.cpp/v1", local=True),
}
"""Providers whose pools need nothing but these. Clouds, which need more, are the imports' own cases."""

OTHER_NAMES: Mapping[str, str] = {
    "text-completion-openai": "openai",
    "custom_openai": "openai",
    "openai_like": "openai",
    "anthropic_text": "anthropic",
    "text-completion-codestral": "codestral",
    "cohere_chat": "cohere",
    "ollama_chat": "ollama",
    "vllm": "hosted_vllm",
    "together-ai": "together_ai",
    "fireworks-ai": "fireworks_ai",
    "mistral-ai": "mistral",
    "perplexity-ai": "perplexity",
    "x-ai": "xai",
    "google": "gemini",
    "deepseek-ai": "deepseek",
    "jina": "jina_ai",
    "zhipu": "zai",
    "nvidia": "nvidia_nim",
}
"""Further names of the same providers, of LiteLLM and of Portkey."""

_BY_BEGINNING: tuple[tuple[str, str], ...] = (
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4-", "openai"),
    ("text-embedding-", "openai"),
    ("dall-e", "openai"),
    ("whisper-", "openai"),
    ("tts-", "openai"),
    ("omni-moderation", "openai"),
    ("claude-", "anthropic"),
    ("command-", "cohere"),
    ("gemini-", "vertex_ai"),
)


def provider_of(slug: str) -> Provider | None:
    """A provider by its name at LiteLLM or Portkey; None for an unlisted one."""
    return PROVIDERS.get(OTHER_NAMES.get(slug, slug))


def guessed(model: str) -> str:
    """The provider of a model that is named without one; empty if the name does not show it."""
    return next((provider for start, provider in _BY_BEGINNING if model.startswith(start)), "")
