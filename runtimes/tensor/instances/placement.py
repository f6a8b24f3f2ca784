"""The copies of a model, and the thread or process of each."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from config.schema.units import parse_size
from runtimes.tensor.backends.registry import backend, complete_config, in_thread, own_name
from runtimes.tensor.backends.signature import declared, is_declared
from runtimes.tensor.configuration import triton
from runtimes.tensor.configuration.model_config import InstanceGroup, ModelConfig
from runtimes.tensor.instances.copy import Copy
from runtimes.tensor.instances.process import ProcessWorker, complete_in_process
from runtimes.tensor.instances.request_copy import RequestCopy
from runtimes.tensor.instances.request_worker import RequestWorker
from runtimes.tensor.instances.services import ModelServices
from runtimes.tensor.instances.thread import ThreadWorker
from runtimes.tensor.instances.worker import Job
from runtimes.tensor.interfaces import Device, Instance, ModelLoadError
from runtimes.tensor.triton_api import loading

EXECUTION_SECONDS = 60.0
"""The longest time of one batch, unless the configuration has one."""


async def complete(config: ModelConfig, folder: Path) -> ModelConfig:
    """The configuration completed from the model's file. Raises `ModelLoadError`.

    Files that could crash the server are opened in a process.
    """
    kind = own_name(config.backend)
    if takes_requests(config, folder):
        if not loading.completes_itself(config, model_file(config, folder)):
            return config
        return await complete_in_process(config, folder, _description(config))
    if await asyncio.to_thread(is_declared, kind, config, folder):
        return declared(kind, config)
    if any(_in_process(group, config) for group in config.instance_groups):
        return await complete_in_process(config, folder)
    return await asyncio.to_thread(lambda: complete_config(backend(kind), config, folder))


def takes_requests(config: ModelConfig, folder: Path) -> bool:
    """Whether the model is written for Triton's Python backend, and so receives requests whole."""
    if own_name(config.backend) != "python" or "class" in config.parameters:
        return False
    return loading.is_written_for_triton(model_file(config, folder))


def model_file(config: ModelConfig, folder: Path) -> Path:
    return folder / (config.default_model_filename or "model.py")


def _description(config: ModelConfig) -> str:
    return json.dumps(triton.to_json(config))


async def start(config: ModelConfig, folder: Path, services: ModelServices | None = None) -> Sequence[Instance]:
    """All copies of a complete model, loaded. Raises `ModelLoadError`; then, or when cancelled, none stays.

    `services` answer the questions of models that are written for Triton.
    """
    seconds = config.execution_timeout or EXECUTION_SECONDS
    whole = takes_requests(config, folder)
    description = _description(config) if whole else ""
    make = functools.partial(RequestWorker, services or ModelServices())
    copies: list[Copy] = []
    for job, process in jobs(config, folder):
        if whole:
            copies.append(RequestCopy(replace(job, description=description), make, seconds))
        else:
            copies.append(Copy(job, ProcessWorker if process else ThreadWorker, seconds))
    await load_all(copies)
    return copies


async def load_all(copies: Sequence[Copy]) -> None:
    """Load all copies at once. Raises `ModelLoadError`; then, or when cancelled, closes all of them."""
    try:
        async with asyncio.TaskGroup() as group:
            for copy in copies:
                group.create_task(copy.load())
    except BaseException as error:
        for copy in copies:
            await copy.aclose()
        if isinstance(error, BaseExceptionGroup):
            raise error.exceptions[0] from None
        raise


def jobs(config: ModelConfig, folder: Path) -> list[tuple[Job, bool]]:
    """The job of each copy, and whether it runs in a process."""
    total = sum(group.count * max(1, len(group.gpus)) for group in config.instance_groups)
    limit = _memory_limit(config)
    jobs: list[tuple[Job, bool]] = []
    for index, group in enumerate(config.instance_groups):
        process = _in_process(group, config)
        for name in ("memory_limit", "interpreter"):
            if name in config.parameters and not process:
                raise ModelLoadError(f"`{name}` is for a process: set the instance group's placement to process")
        cores = len(group.cpus) or len(os.sched_getaffinity(0))
        threads = group.threads or max(1, cores // (group.count if group.cpus else total))
        for gpu in _gpus(group):
            for _ in range(group.count):
                name = f"{config.name}_{index}_{len(jobs)}"
                device = Device(gpu, threads)
                jobs.append((Job(name, config.backend, config, folder, device, group.cpus, limit), process))
    return jobs


def _gpus(group: InstanceGroup) -> Sequence[int | None]:
    if group.kind == "gpu" or (group.kind == "auto" and group.gpus):
        return group.gpus or (0,)
    return (None,)


def _in_process(group: InstanceGroup, config: ModelConfig) -> bool:
    if group.placement == "auto":
        return sys.platform == "linux" and not in_thread(config)
    if group.placement == "process" and sys.platform != "linux":
        raise ModelLoadError("instances in processes of their own need Linux: set placement to thread")
    return group.placement == "process"


def _memory_limit(config: ModelConfig) -> int:
    written = config.parameters.get("memory_limit")
    if written is None:
        return 0
    try:
        return parse_size(written)
    except ValueError as error:
        raise ModelLoadError(f"parameter `memory_limit`: {error}") from None
