"""What of the gateway's environment a runtime gets: real processes, and every name that could be a credential."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import CommandRuntime, LlmRuntime, RuntimeConfig, TensorRuntime
from gateway.placement.environment import NAMES, PREFIXES, environment, inherited
from gateway.placement.local import LocalRuntimes

SECRETS = {
    "OPENAI_API_KEY": "sk-1", "PROVIDER_KEY": "sk-2", "HF_TOKEN": "hf-1", "VLLM_API_KEY": "v",
    "AWS_SECRET_ACCESS_KEY": "a",
    "KEY_PEPPER": "p", "REDIS_PASSWORD": "r", "DATABASE_URL": "postgresql://u:p@h/d",
    "PIP_INDEX_URL": "https://u:p@pypi",
    "HTTPS_PROXY": "http://user:pass@proxy:3128", "HUGGING_FACE_HUB_TOKEN": "h", "TF_AUTH": "x", "ANYTHING": "else",
}  # fmt: skip
NEEDED = {
    "PATH": "/usr/bin", "HOME": "/home/me", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "0",
    "HF_HOME": "/cache", "HTTP_PROXY": "http://proxy:3128", "TOKENIZERS_PARALLELISM": "false", "LD_LIBRARY_PATH": "/l",
    "PIP_NO_INDEX": "1", "VLLM_CPU_KVCACHE_SPACE": "4", "PYTHONPATH": "/p", "SSL_CERT_FILE": "/c.pem",
}  # fmt: skip
PARTS = st.sampled_from(["KEY", "API_KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS", "AUTH", "key", "Token"])
HEADS = st.sampled_from([*PREFIXES, "MY_", "", "OPENAI_"])
TAILS = st.sampled_from(["", "_2", "_FILE", "_VALUE"])


def test_what_a_machine_needs_is_inherited_and_no_credential() -> None:
    assert inherited({**NEEDED, **SECRETS}) == NEEDED


@given(HEADS, PARTS, TAILS, st.text(max_size=5))
def test_no_name_of_a_credential_is_inherited(head: str, part: str, tail: str, value: str) -> None:
    name = head + ("" if head.endswith("_") or not head else "_") + part + tail
    assert inherited({name: value}) == {}


@given(st.sampled_from(sorted(NAMES)), st.sampled_from(["http", "https", "socks5"]), st.text("abc:%1", min_size=1))
def test_no_url_with_a_user_is_inherited(name: str, scheme: str, user: str) -> None:
    assert inherited({name: f"{scheme}://{user}@proxy:3128/"}) == {}


def test_what_the_section_writes_wins() -> None:
    config = LlmRuntime.model_validate(
        {
            "kind": "llm",
            "model": "m",
            "env": {"OMP_NUM_THREADS": 2, "ANYTHING": "mine"},
            "secrets": {"HF_TOKEN": "mine"},
        }
    )
    found = environment({**NEEDED, **SECRETS}, config.env, config)
    assert found == {**NEEDED, "OMP_NUM_THREADS": "2", "ANYTHING": "mine", "HF_TOKEN": "mine"}


@pytest.mark.parametrize(
    "written",
    [
        {"kind": "command", "command": [sys.executable, "{port}"], "env": {"MINE": "1"}},
        {"kind": "llm", "model": "m", "env": {"MINE": "1"}},
        {"kind": "tensor", "repository": "r", "env": {"MINE": "1"}},
    ],
    ids=lambda written: written["kind"],
)
async def test_no_process_of_a_runtime_has_the_gateway_s_secrets(
    written: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real start of each kind, with a program that writes its environment down in the runtime's place."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    told = tmp_path / "environment.json"
    kinds: dict[object, type[RuntimeConfig]] = {"command": CommandRuntime, "llm": LlmRuntime, "tensor": TensorRuntime}
    runtimes = LocalRuntimes()
    runtime = runtimes.make("one", kinds[written["kind"]].model_validate(written), lambda reason: None)
    script = f"import json, os, time; json.dump(dict(os.environ), open({str(told)!r} + '~', 'w'))"
    script += f"; os.rename({str(told)!r} + '~', {str(told)!r}); time.sleep(1000)"
    command = runtime._launch.command
    command[-2 if written["kind"] == "command" else 0 :] = [sys.executable, "-c", script]
    runtime.start()
    try:
        async with asyncio.timeout(30):
            while not told.exists():
                await asyncio.sleep(0.01)
    finally:
        await runtime.stop()
        runtimes.close()
    found = json.loads(told.read_text())
    assert not SECRETS.keys() & found.keys()
    assert (found["MINE"], found["PATH"]) == ("1", os.environ["PATH"])
