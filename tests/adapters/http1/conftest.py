"""Every test of this folder runs on both event loops, and none may leave an error behind unseen."""

from tests.support.loops import certificate, frequent_sweeps, pytest_asyncio_loop_factories, reports

__all__ = ["certificate", "frequent_sweeps", "pytest_asyncio_loop_factories", "reports"]
