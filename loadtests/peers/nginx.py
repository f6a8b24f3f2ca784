"""nginx: a key check, request and connection limits, a rule, a split, least connections, retries, an access log.

It reads no body: it knows neither models nor tokens, and has no metrics.
"""

import os
import shutil
from pathlib import Path

from loadtests.servers import Gateway, Launch, Site
from loadtests.venvs import InstallError

KEY = "sk-nginx-bench-0123456789abcdefghijklmnopqrstuvwxyz01234"


def nginx_program() -> Path:
    """nginx from PATH."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise InstallError("nginx: not on PATH; apt-get install nginx-light")
    return Path(program)


def nginx_config(site: Site) -> str:
    """One worker, keep-alive on both sides without a bound on requests, and chunks forwarded as they arrive."""
    user = "user root;" if os.geteuid() == 0 else ""  # else the worker may not enter the folder
    temp = "\n".join(
        f"  {kind}_temp_path {site.folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    upstreams = "\n".join(_upstream(name, site) for name in ("main", "candidate", "gold"))
    return f"""{user}
worker_processes 1;
daemon off;
pid {site.folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
{temp}
  log_format json escape=json '{{"at":"$time_iso8601","id":"$request_id","user":"$tenant","status":$status,'
    '"seconds":$request_time,"upstream":"$upstream_addr","upstream_seconds":"$upstream_header_time"}}';
  access_log {site.folder}/access.log json buffer=64k flush=1s;
  map_hash_bucket_size 256;
  tcp_nodelay on;
  keepalive_requests 1000000000;
  client_body_buffer_size 1m;
  map $http_authorization $tenant {{ default ""; "Bearer {KEY}" bench; }}
  map $http_x_tier $gold {{ default 0; "~^gold" 1; }}
  split_clients "$http_authorization$request_id" $arm {{ 90% main; * candidate; }}
  map $gold $target {{ 1 gold; default $arm; }}
  limit_req_zone $tenant zone=requests:10m rate=1000000r/s;
  limit_conn_zone $tenant zone=concurrency:10m;
{upstreams}
  server {{
    listen 127.0.0.1:{site.port};
    location / {{
      if ($tenant = "") {{ return 401; }}
      limit_req zone=requests burst=1000000 nodelay;
      limit_conn concurrency 10000;
      proxy_pass http://$target;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_next_upstream error timeout http_502 http_503;
      proxy_next_upstream_tries 3;
    }}
  }}
}}
"""


def _upstream(name: str, site: Site) -> str:
    servers = "\n".join(f"    server {endpoint} max_fails=5 fail_timeout=10s;" for endpoint in site.endpoints)
    return f"""  upstream {name} {{
    zone {name} 64k;
    least_conn;
{servers}
    keepalive 256;
    keepalive_requests 1000000000;
  }}"""


def launch_nginx(site: Site, program: Path) -> Launch:
    """nginx in the foreground, on a configuration of its own."""
    config = site.folder / "nginx.conf"
    config.write_text(nginx_config(site))
    return Launch([str(program), "-e", "stderr", "-p", str(site.folder), "-c", str(config)], KEY)


NGINX = Gateway("nginx", nginx_program, launch_nginx)
