"""LiteLLM's proxy: a master key, a split by weight over deployments, retries, cooldown.

Keys and limits of tenants need its database; here it has none.
"""

import functools
from pathlib import Path

import yaml

from loadtests.gateways.replies import MODEL
from loadtests.servers import Gateway, Launch, Site
from loadtests.venvs import ensure

# Without opentelemetry this release tries to import it again on every request, at half the speed;
# httptools is what uvicorn parses with when it can.
LITELLM = (
    "litellm[proxy]==1.106.2",
    "opentelemetry-api==1.45.2",
    "opentelemetry-sdk==1.45.2",
    "opentelemetry-exporter-otlp==1.45.2",
    "httptools==0.9.0",
)
LITELLM_KEY = "sk-headrace-bench-0123456789abcdefghijklmnopqrstuvwxyz012"


def litellm_config(site: Site) -> str:
    """One model with two deployments behind a master key."""
    deployments = [
        {"model": f"openai/{MODEL}", "api_base": f"http://{endpoint}/v1", "api_key": "none", "weight": weight}
        for endpoint, weight in zip(site.endpoints, (9, 1), strict=True)
    ]
    return yaml.safe_dump(
        {
            "model_list": [{"model_name": MODEL, "litellm_params": parameters} for parameters in deployments],
            "router_settings": {"num_retries": 2, "allowed_fails": 5, "cooldown_time": 10},
            "general_settings": {"master_key": LITELLM_KEY},
        }
    )


def launch_litellm(site: Site, venv: Path) -> Launch:
    """LiteLLM's proxy in its production mode."""
    config = site.folder / "litellm.yaml"
    config.write_text(litellm_config(site))
    options = ["--host", "127.0.0.1", "--port", str(site.port), "--num_workers", "1", "--telemetry", "False"]
    env = {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return Launch([str(venv / "bin/litellm"), "--config", str(config), *options], LITELLM_KEY, env)


LITELLM_PROXY = Gateway(
    "litellm",
    functools.partial(ensure, "litellm", LITELLM),
    launch_litellm,
    verbatim=False,  # it parses answers and writes them anew
    refusal=400,  # "no connected db": without one it knows no key but the master key
    slow=True,  # saturates near 110 requests or 1,200 chunks a second
)
