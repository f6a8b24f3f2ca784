"""The ensembles of the benchmark: for Triton, for our runtime, and as pipelines of our gateway."""

import argparse
import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from loadtests.peers import triton
from loadtests.servers import StartError, free_ports
from loadtests.tensors import headrace, report
from loadtests.tensors.peer import OIP, OIP_PATH, SINGLE_THREAD, http_request, post
from loadtests.tensors.repositories import MODELS, ONE_THREAD
from loadtests.tensors.targets import Door, Target, is_ready, server

ENSEMBLES = Path(__file__).parent / "ensembles"
NAMES = tuple(sorted(folder.name for folder in ENSEMBLES.iterdir()))
MEMBER = "add_sub"
PIPELINE = "pipeline"
"""The target of the gateway's pipelines."""
_BOTH: Final = {"INPUT0": "OUTPUT0", "INPUT1": "OUTPUT1"}
ONE_PROCESS: Final = 'parameters { key: "headrace.processes" value { string_value: "1" } }\n'
"""Of our ensembles: a process of their own."""


def repository(folder: Path, kind: str, source: str = "", more: str = "") -> Path:
    """The models and ensembles for `triton` or `headrace`, each as its users write them.

    `source` names the server whose model file is copied, if it is the other's; ensembles have `more` beside steps.
    """
    version = folder / MEMBER / "1"
    version.mkdir(parents=True)
    config = (MODELS / MEMBER / "config.pbtxt").read_text()
    if kind == report.OURS:
        config += ONE_THREAD
    (folder / MEMBER / "config.pbtxt").write_text(config)
    shutil.copy(MODELS / MEMBER / f"{source or kind}.py", version / "model.py")
    for name in NAMES:
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text((ENSEMBLES / name / "config.pbtxt").read_text() + more)
    return folder


@contextlib.contextmanager
def running_triton(folder: Path, core: str) -> Iterator[Target]:
    """Raises `StartError` or `InstallError`."""
    venv, ports = triton.install(), triton.Ports(*free_ports(3))
    started = triton.launch(venv, repository(folder / "triton-models", "triton"), ports, ["--model-control-mode=none"])
    launch = replace(started, env={**started.env, **SINGLE_THREAD})
    with contextlib.ExitStack() as stack:
        stack.callback(triton.sweep, ports)
        pid = stack.enter_context(server("triton", launch, core, folder, lambda _: is_ready(ports.http)))
        yield Target(report.TRITON, {"http": Door(ports.http, pid)}, folder / "unused")


@contextlib.contextmanager
def running_ours(folder: Path, core: str, options: argparse.Namespace) -> Iterator[Target]:
    """Our runtime. Raises `StartError`."""
    source, more = "triton" if options.same_files else "", "" if options.step_by_step else ONE_PROCESS
    models = repository(folder / "headrace-models", report.OURS, source, more)
    with headrace.running_headrace(models, core, folder) as target:
        yield target


def pipelines() -> dict[str, Any]:
    """The ensembles as pipelines of the gateway, by name."""

    def step(name: str, **inputs: str) -> dict[str, Any]:
        return {"name": name, "model": MEMBER, **({"in": inputs} if inputs else {})}

    def after(name: str, before: str) -> dict[str, Any]:
        return step(name, **{taken: f"{before}.{given}" for taken, given in _BOTH.items()})

    return {
        "ensemble": {"steps": [step("one"), after("two", "one"), after("three", "two")]},
        "diamond": {
            "steps": [
                step("top"),
                step("left", INPUT0="top.OUTPUT0", INPUT1="request.INPUT1"),
                step("right", INPUT0="top.OUTPUT1", INPUT1="request.INPUT1"),
                step("join", INPUT0="left.OUTPUT0", INPUT1="right.OUTPUT0"),
            ]
        },
    }


def requests(folder: Path, target: Target) -> dict[str, Target]:
    """By ensemble, the target with the request for it. Raises `StartError` if a response is wrong."""
    targets = {}
    for name in NAMES:
        plain = folder / f"{target.name}-{name}.http"
        key = target.keys.get("http")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        plain.write_bytes(http_request(OIP_PATH.replace(MEMBER, name), OIP, headers))
        body = post(target.doors["http"].port, plain, [])
        if body is None or b"OUTPUT1" not in body:
            raise StartError(f"{target.name} does not compute {name}: {(body or b'no response')[:300]!r}")
        targets[name] = replace(target, plain=plain)
    return targets
