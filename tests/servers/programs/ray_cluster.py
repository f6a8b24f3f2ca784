"""A Ray cluster of several nodes on one machine, and other programs beside it, controlled over HTTP.

`ray_cluster.py PORT NODES CPUS`, in Ray's own environment. `GET /state` has the cluster's addresses and the nodes;
`POST /run` starts a program (`{"name", "argv", "env"}`), `POST /signal` signals it (`{"name", "number"}`), `POST /kill`
kills a node with everything on it (`{"node"}`), `POST /add` adds one (`{"cpus"}`), `POST /stop_head` kills the head,
`POST /stop_client` and `POST /start_client` kill and start the server of Ray Client, `POST /output` runs a program to
its end (`{"argv"}`), `POST /end` kills all programs and replicas.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import psutil
from ray.cluster_utils import Cluster

FAST = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
CLIENT = 10001


class Control:
    """The cluster and the programs."""

    def __init__(self, nodes: int, cpus: int) -> None:
        self._programs: dict[str, subprocess.Popen[bytes]] = {}
        self._count = 0
        head = {"num_cpus": 0, "_system_config": FAST, "node_ip_address": "127.0.0.1", "ray_client_server_port": CLIENT}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._nodes: dict[str, Any] = {}
        for _ in range(nodes):
            self.add({"cpus": cpus})

    def state(self, _: dict[str, Any]) -> dict[str, Any]:
        addresses = {"address": self._cluster.address, "client": f"ray://127.0.0.1:{CLIENT}"}
        return {**addresses, "nodes": {name: self._servers(name) for name in self._nodes}}

    def _servers(self, name: str) -> list[int]:
        """The processes of runtimes on a node."""
        return [each.pid for each in self._processes(name) if "--exit-with-parent" in _command(each)]

    def _processes(self, name: str) -> list[psutil.Process]:
        processes = []
        for process in self._nodes[name].live_processes():
            try:
                parent = psutil.Process(process[1].pid)
                processes += [parent, *parent.children(recursive=True)]
            except psutil.NoSuchProcess:
                pass
        return processes

    def add(self, message: dict[str, Any]) -> dict[str, Any]:
        name = f"node{self._count}"
        self._count += 1
        self._nodes[name] = self._cluster.add_node(num_cpus=message["cpus"], node_ip_address="127.0.0.1", wait=False)
        return {"node": name}

    def kill(self, message: dict[str, Any]) -> dict[str, Any]:
        """Kill all processes of a node at once, as a loss of power does."""
        processes, node = self._processes(message["node"]), self._nodes.pop(message["node"])
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._cluster.remove_node(node, allow_graceful=False)
        return {"killed": len(processes)}

    def stop_head(self, _: dict[str, Any]) -> dict[str, Any]:
        """Kill the processes of the head alone: the nodes remain."""
        for _name, processes in list(self._cluster.head_node.all_processes.items()):
            for info in processes:
                info.process.kill()
        return {}

    def stop_client(self, _: dict[str, Any]) -> dict[str, Any]:
        """Kill the server of Ray Client."""
        (info,) = self._cluster.head_node.all_processes.pop("ray_client_server")
        info.process.kill()
        info.process.wait()
        return {}

    def start_client(self, _: dict[str, Any]) -> dict[str, Any]:
        self._cluster.head_node.start_ray_client_server()
        return {}

    def run(self, message: dict[str, Any]) -> dict[str, Any]:
        env = {**os.environ, **message["env"]}
        program = subprocess.Popen(message["argv"], env=env, cwd=message["cwd"], start_new_session=True)
        self._programs[message["name"]] = program
        return {"pid": program.pid}

    def output(self, message: dict[str, Any]) -> dict[str, Any]:
        done = subprocess.run(message["argv"], capture_output=True, text=True, timeout=120)
        return {"output": done.stdout + done.stderr}

    def signal(self, message: dict[str, Any]) -> dict[str, Any]:
        program = self._programs[message["name"]]
        program.send_signal(message["number"])
        return {"status": program.wait(120)}

    def end(self, _: dict[str, Any]) -> dict[str, Any]:
        """Kill all programs, and the replicas that they leave."""
        for program in self._programs.values():
            program.kill()
            program.wait()
        self._programs.clear()
        self._end_replicas()
        return {}

    def _end_replicas(self) -> None:
        """Kill replicas that a killed gateway still leases, and wait for the end of their servers."""
        end = time.monotonic() + 120
        while any(self._servers(name) for name in self._nodes) and time.monotonic() < end:
            for name in self._nodes:
                for process in self._processes(name):
                    if "".join(_command(process)).startswith("ray::Replica"):
                        with contextlib.suppress(psutil.NoSuchProcess):
                            process.kill()
            time.sleep(0.1)

    def call(self, name: str, message: dict[str, Any]) -> dict[str, Any]:
        """One at a time, in the main thread: Ray requires it."""
        result: dict[str, Any] = getattr(self, name)(message)
        return result


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


class Handler(BaseHTTPRequestHandler):
    """Calls a method of the control for each path."""

    control: Control

    def do_GET(self) -> None:
        self._respond({})

    def do_POST(self) -> None:
        self._respond(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def _respond(self, message: dict[str, Any]) -> None:
        try:
            body, status = json.dumps(self.control.call(self.path.strip("/"), message)).encode(), 200
        except Exception as error:
            body, status = repr(error).encode(), 500
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: polls are frequent."""


def main() -> None:
    port, nodes, cpus = map(int, sys.argv[1:])
    Handler.control = Control(nodes, cpus)
    try:
        HTTPServer(("127.0.0.1", port), Handler).serve_forever()
    finally:
        Handler.control.end({})


if __name__ == "__main__":
    main()
