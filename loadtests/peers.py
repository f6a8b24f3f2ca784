"""The gateways that ours is measured against, each started as its own users start it for speed.

Every peer is given one worker process or thread pool on one core, keep-alive to the upstream and no
access log; versions are pinned, so that a change in a ratio is a change of ours.
"""

import functools
import os
import shutil
from pathlib import Path

import yaml

from loadtests.replies import MODEL
from loadtests.servers import Gateway, Launch, Site, free_port
from loadtests.venvs import InstallError, ensure

SGLANG_ROUTER = ("sglang-router==0.3.2",)
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


def find_nginx() -> Path:
    """nginx from PATH."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise InstallError("nginx: not on PATH; apt-get install nginx-light")
    return Path(program)


def nginx_config(site: Site) -> str:
    """One worker, keep-alive on both sides without a bound on requests, and chunks passed on as they come."""
    user = "user root;" if os.geteuid() == 0 else ""  # else the worker may not enter the folder
    temp = "\n".join(
        f"  {kind}_temp_path {site.folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""{user}
worker_processes 1;
daemon off;
pid {site.folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
{temp}
  access_log off;
  tcp_nodelay on;
  keepalive_requests 1000000000;
  client_body_buffer_size 1m;
  upstream backend {{
    server 127.0.0.1:{site.upstream};
    keepalive 256;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{site.port};
    location / {{
      proxy_pass http://backend;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


def launch_nginx(site: Site, program: Path) -> Launch:
    """nginx in the foreground, on a configuration of its own."""
    config = site.folder / "nginx.conf"
    config.write_text(nginx_config(site))
    return Launch([str(program), "-e", "stderr", "-p", str(site.folder), "-c", str(config)])


def launch_sglang_router(site: Site, venv: Path) -> Launch:
    """The Rust router of SGLang, in front of one worker."""
    module = [str(venv / "bin/python"), "-m", "sglang_router.launch_router", "--host", "127.0.0.1"]
    ports = ["--port", str(site.port), "--prometheus-port", str(free_port())]
    worker = ["--worker-urls", f"http://127.0.0.1:{site.upstream}", "--policy", "round_robin"]
    return Launch([*module, *ports, *worker, "--log-level", "error"])


def litellm_config(site: Site) -> str:
    """One OpenAI-compatible model behind a master key."""
    parameters = {
        "model": f"openai/{MODEL}",
        "api_base": f"http://127.0.0.1:{site.upstream}/v1",
        "api_key": "none",
    }
    return yaml.safe_dump(
        {
            "model_list": [{"model_name": MODEL, "litellm_params": parameters}],
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


NGINX = Gateway("nginx", find_nginx, launch_nginx)
SGLANG = Gateway("sglang-router", functools.partial(ensure, "sglang-router", SGLANG_ROUTER), launch_sglang_router)
LITELLM_PROXY = Gateway(
    "litellm",
    functools.partial(ensure, "litellm", LITELLM),
    launch_litellm,
    verbatim=False,  # it parses answers and writes them anew
    refusal=400,  # "no connected db": without one it knows no key but the master key
    slow=True,  # saturates near 110 requests or 1,200 chunks a second
)
PEERS = {gateway.name: gateway for gateway in (NGINX, SGLANG, LITELLM_PROXY)}
