"""How each agent is started: the variables, files and command that its users write, all else by default."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True)
class Start:
    """How an agent is started on a task."""

    command: Sequence[str]
    """A word that begins with `{programs}` or `{home}` is in the folder of the installed programs, or in the home."""
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of its home, by path."""


@dataclass(frozen=True)
class Agent:
    """An agent, with one way to reach the gateway."""

    package: str
    """What is installed: a name of `versions.py`."""
    start: Callable[[str, str, str, str], Start]
    """Of the gateway's URL, a key, the name of the model and the text of the user."""


def claude_code(url: str, key: str, model: str, task: str) -> Start:
    """Claude Code, by the door of Messages."""
    variables = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": key, "ANTHROPIC_MODEL": model}
    return Start(["claude", "-p", task, "--allowedTools", "Bash,Read,Write"], variables)


def claude_code_bedrock(url: str, key: str, model: str, task: str) -> Start:
    """Claude Code for Bedrock, by the door of `InvokeModel`, with a key of the gateway as a key of Bedrock."""
    place = {"CLAUDE_CODE_USE_BEDROCK": "1", "ANTHROPIC_BEDROCK_BASE_URL": url, "AWS_REGION": "eu-west-1"}
    variables = {**place, "AWS_BEARER_TOKEN_BEDROCK": key, "ANTHROPIC_MODEL": model}
    return Start(["claude", "-p", task, "--allowedTools", "Bash,Read,Write"], variables)


def claude_code_vertex(url: str, key: str, model: str, task: str) -> Start:
    """Claude Code for Vertex AI, by the door of `rawPredict`, with a key of the gateway as a token."""
    place = {"CLAUDE_CODE_USE_VERTEX": "1", "ANTHROPIC_VERTEX_BASE_URL": f"{url}/v1", "CLOUD_ML_REGION": "global"}
    own = {"ANTHROPIC_VERTEX_PROJECT_ID": "headrace", "CLAUDE_CODE_SKIP_VERTEX_AUTH": "1"}
    variables = {**place, **own, "ANTHROPIC_AUTH_TOKEN": key, "ANTHROPIC_MODEL": model}
    return Start(["claude", "-p", task, "--allowedTools", "Bash,Read,Write"], variables)


def codex(url: str, key: str, model: str, task: str) -> Start:
    """Codex CLI, by the door of Responses, with the gateway as a provider of its own."""
    provider = f'name = "Headrace"\nbase_url = "{url}/v1"\nenv_key = "HEADRACE_KEY"\n'
    config = f'model = "{model}"\nmodel_provider = "headrace"\n[model_providers.headrace]\n{provider}'
    return Start(_codex(task), {"HEADRACE_KEY": key}, {".codex/config.toml": config})


def codex_openai(url: str, key: str, model: str, task: str) -> Start:
    """Codex CLI, with the gateway in the place of OpenAI: it tries WebSockets first."""
    config = f'model = "{model}"\nopenai_base_url = "{url}/v1"\n'
    return Start(_codex(task), {"CODEX_API_KEY": key}, {".codex/config.toml": config})


def _codex(task: str) -> list[str]:
    # A container may not create the sandbox of its commands, which run in a folder of the test.
    return ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", task]


def opencode(url: str, key: str, model: str, task: str) -> Start:
    """opencode, by the door of chats."""
    images = {"attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}}
    options = {"baseURL": f"{url}/v1", "apiKey": "{env:HEADRACE_KEY}"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {model: images}}
    config = {"provider": {"headrace": provider}, "model": f"headrace/{model}"}
    files = {".config/opencode/opencode.json": json.dumps(config)}
    return Start(["opencode", "run", task], {"HEADRACE_KEY": key}, files)


def qwen_code(url: str, key: str, model: str, task: str) -> Start:
    """Qwen Code, by the door of chats."""
    variables = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key, "OPENAI_MODEL": model}
    return Start(["qwen", "--yolo", "-p", task], variables)


def cline(url: str, key: str, model: str, task: str) -> Start:
    """Cline's command, by the door of chats."""
    script = 'cline auth -p openai-compatible -k "$0" -b "$1/v1" -m "$2" && cline -P openai-compatible -m "$2" "$3"'
    return Start(["sh", "-c", script, key, url, model, task])


def continue_(url: str, key: str, model: str, task: str) -> Start:
    """Continue's command, by the door of chats."""
    features = ["tool_use", "image_input"]
    fields = {"name": model, "provider": "openai", "model": model, "apiBase": f"{url}/v1", "apiKey": key}
    config = {"name": "Headrace", "version": "1.0.0", "schema": "v1", "models": [{**fields, "capabilities": features}]}
    return Start(
        ["cn", "--config", "{home}/.continue/config.yaml", "--auto", "-p", task],
        files={".continue/config.yaml": json.dumps(config)},
    )


def aider(url: str, key: str, model: str, task: str) -> Start:
    """Aider, which edits files by the text of the answers: it offers no tools."""
    command = ["aider", "--model", f"openai/{model}", "--yes-always", "--no-git", "--message", task, "facts.txt"]
    return Start(command, {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": key})


def _ai_sdk(provider: str, url: str, key: str, model: str, task: str) -> Start:
    """A tool loop of the AI SDK with one of its providers."""
    command = ["node", "{programs}/../../aisdk.mjs", provider, model, task]
    return Start(command, {"HEADRACE_URL": url, "HEADRACE_KEY": key})


def _langchain(provider: str, url: str, key: str, model: str, task: str) -> Start:
    """A tool loop of LangChain with one of its clients."""
    script = str(Path(__file__).with_name("langchain_loop.py"))
    return Start(["python", script, provider, model, task], {"HEADRACE_URL": url, "HEADRACE_KEY": key})


AGENTS: Mapping[str, Agent] = MappingProxyType(
    {
        "claude-code": Agent("claude-code", claude_code),
        "claude-code-bedrock": Agent("claude-code", claude_code_bedrock),
        "claude-code-vertex": Agent("claude-code", claude_code_vertex),
        "codex": Agent("codex", codex),
        "codex-openai": Agent("codex", codex_openai),
        "opencode": Agent("opencode", opencode),
        "qwen-code": Agent("qwen-code", qwen_code),
        "cline": Agent("cline", cline),
        "continue": Agent("continue", continue_),
        "aider": Agent("aider", aider),
        **{
            f"ai-sdk-{provider}": Agent("ai-sdk", partial(_ai_sdk, provider))
            for provider in ("openai", "openai-chat", "openai-compatible", "anthropic")
        },
        **{
            f"langchain-{provider}": Agent("langchain", partial(_langchain, provider))
            for provider in ("openai", "responses", "anthropic")
        },
    }
)
