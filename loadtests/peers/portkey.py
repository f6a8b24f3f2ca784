"""Portkey's open gateway: a provider and its address in the request's headers, and retries.

Keys, limits, splits by weight over one address, metrics and an access log are not in its open form.
"""

import json
import shutil
import subprocess
from pathlib import Path

from loadtests.native import CACHE
from loadtests.servers import Gateway, Launch, Site
from loadtests.venvs import InstallError

# The newer server library that npm would pick answers streams with 500.
PACKAGE = {
    "private": True,
    "dependencies": {"@portkey-ai/gateway": "1.15.2"},
    "overrides": {"@hono/node-server": "1.3.3"},
}
INSTALL_TIMEOUT_S = 300


def install_portkey(cache: Path = CACHE) -> Path:
    """A folder of npm packages of its own."""
    folder = cache / "peers" / "portkey"
    marker, required = folder / "installed.txt", json.dumps(PACKAGE)
    if marker.exists() and marker.read_text() == required:
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise InstallError("portkey: npm is not on PATH")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "package.json").write_text(required)
    try:
        done = subprocess.run(
            [npm, "install", "--ignore-scripts"],
            cwd=folder, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InstallError(f"portkey: installing took longer than {INSTALL_TIMEOUT_S} s") from None
    if done.returncode:
        raise InstallError(f"portkey: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    marker.write_text(required)
    return folder


def launch_portkey(site: Site, folder: Path) -> Launch:
    """Its Node.js server without the page for people."""
    server = folder / "node_modules/@portkey-ai/gateway/build/start-server.js"
    target = {
        "provider": "openai",
        "custom_host": f"http://{site.endpoints[0]}/v1",
        "retry": {"attempts": 2, "on_status_codes": [502, 503]},
    }
    headers = {"x-portkey-config": json.dumps(target)}
    node = shutil.which("node") or "node"
    return Launch([node, str(server), f"--port={site.port}", "--headless"], headers=headers)


PORTKEY = Gateway("portkey", install_portkey, launch_portkey, verbatim=False, slow=True)
