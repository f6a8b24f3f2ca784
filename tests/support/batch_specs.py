"""Batches of tenants, as the database has them."""

from typing import Any

from gateway.batches.rows import BatchHolder, BatchSpec


def spec(number: int, tenant: str, api: Any) -> BatchSpec:
    """A batch of a tenant."""
    holder = BatchHolder(tenant, "k", [], {})
    return BatchSpec(
        f"batch_{number}", holder, api, "/v1/chat/completions", "file-i", "file-o", "file-e", "24h", 1.0, 86401.0,
        None, 60.0,
    )  # fmt: skip
