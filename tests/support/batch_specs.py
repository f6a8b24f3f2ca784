"""Batches of tenants, as the database has them, and the parts of a process that runs them."""

import asyncio
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from gateway.features.batches.rows import BatchHolder, BatchSpec
from gateway.features.batches.work import WorkParts


def spec(number: int, tenant: str, api: Any) -> BatchSpec:
    """A batch of a tenant."""
    holder = BatchHolder(tenant, "k", [], {})
    return BatchSpec(
        f"batch_{number}", holder, api, "/v1/chat/completions", "file-i", "file-o", "file-e", "24h", 1.0, 86401.0,
        None, 60.0,
    )  # fmt: skip


class _DirectParts(WorkParts):
    async def in_thread(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return function(*args, **kwargs)


def direct_parts(**parts: Any) -> WorkParts:
    """Parts whose blocking calls run at once. Those that are not given are None."""
    others: dict[str, Any] = {field.name: None for field in fields(WorkParts) if field.name != "insistence"}
    return _DirectParts(**{**others, **parts})
