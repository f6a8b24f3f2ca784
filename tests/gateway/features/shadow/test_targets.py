"""Pools of copies: connections of their own, across reloads, and detected protocols."""

import asyncio

from tests.support.gateways import chat
from tests.support.shadows import ShadowRig, script, shadowing


async def test_a_changed_pool_has_new_connections_after_its_copies() -> None:
    rig = ShadowRig(shadowing(), copied_next=script(latency=0.05))
    await rig.send(chat())
    await asyncio.sleep(0)
    before = rig.copy_pools["next"]
    changed = [pool.model_copy(update={"connect_timeout": 1.25}) for pool in rig.core.snapshot.config.pools]
    rig.copy_pools.configure(changed, None)
    assert rig.copy_pools["next"] is not before
    await rig.copy_pools.trim()
    closed_before = rig.copied["next"].closed
    await rig.until_compared()
    assert rig.shadow.copies == {"equal": 1}
    await rig.copy_pools.trim()
    assert (closed_before, rig.copied["next"].closed) == (False, True)
    rig.assert_idle()


async def test_a_reload_without_changes_preserves_the_connections() -> None:
    rig = ShadowRig(shadowing())
    await rig.compare(chat())
    before = rig.copy_pools["next"]
    rig.copy_pools.configure(rig.core.snapshot.config.pools, None)
    assert rig.copy_pools["next"] is before
    await rig.copy_pools.trim()
    trimmed = rig.copied["next"].closed
    await rig.copy_pools.aclose()
    assert (trimmed, rig.copied["next"].closed) == (False, True)


async def test_a_copy_to_a_pool_that_a_reload_has_removed_is_dropped() -> None:
    """Of a request that a snapshot before the reload has routed."""
    rig = ShadowRig(shadowing())
    pools = rig.core.snapshot.config.pools
    rig.copy_pools.configure([pool for pool in pools if pool.name != "next"], None)
    await rig.compare(chat())
    assert rig.shadow.copies == {"unavailable": 1}
    rig.copy_pools.configure(pools, None)
    copy_pool = rig.copy_pools["next"]
    del rig.pools["next"]
    await rig.compare(chat())
    assert rig.shadow.copies == {"unavailable": 2}
    assert (copy_pool.in_flight, rig.copied["next"].calls) == (0, [])


async def test_a_protocol_that_is_not_detected_drops_the_copy() -> None:
    """With `protocol: auto` copies detect it once, by a health check of their own."""
    rig = ShadowRig(shadowing(protocol="auto"))
    rig.copied["next"].healthy = False
    await rig.compare(chat())
    assert rig.shadow.copies == {"timeout": 1}
    rig.copied["next"].healthy = True
    await rig.compare(chat())
    rig.copied["next"].healthy = False
    await rig.compare(chat())
    assert rig.shadow.copies == {"timeout": 1, "equal": 2}
    rig.assert_idle()
