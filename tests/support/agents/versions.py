"""The packages of agents and client libraries that the tests install, with their versions.

Tests marked `nightly` install the newest of each instead.
"""

from collections.abc import Mapping

NPM: Mapping[str, tuple[str, ...]] = {
    "claude-code": ("@anthropic-ai/claude-code@2.1.332",),
    "codex": ("@openai/codex@0.171.0",),
    "opencode": ("opencode-ai@1.18.33",),
    "gemini-cli": ("@google/gemini-cli@0.61.0",),
    "qwen-code": ("@qwen-code/qwen-code@0.24.4",),
    "cline": ("cline@3.0.65",),
    "continue": ("@continuedev/cli@1.5.47",),
    "google-genai-js": ("@google/genai@3.3.0",),
    "ai-sdk": (
        "ai@7.0.173", "@ai-sdk/openai@4.0.118", "@ai-sdk/anthropic@4.0.105", "@ai-sdk/openai-compatible@3.0.92",
        "zod@4.6.7",
    ),
}  # fmt: skip
"""Packages of npm by agent."""

PIP: Mapping[str, tuple[str, ...]] = {
    "aider": ("aider-chat==0.86.2",),
    "google-genai": ("google-genai==3.6.1",),
    "langchain": ("langchain-openai==1.7.4", "langchain-anthropic==1.7.10"),
}
"""Packages of Python, each agent in an environment of its own."""
