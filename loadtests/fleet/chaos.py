"""Servers that die at random moments and come back."""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Sequence

from loadtests.figures.cpu import processes, tree
from loadtests.fleet.member import Member

AWAY_S = (2.0, 10.0)


async def kill_and_restart(
    members: Sequence[Member], every: float, rng: random.Random, away: tuple[float, float] = AWAY_S
) -> None:
    """One server after the other, until cancelled. One that is not back yet has its turn later."""
    gone: set[Member] = set()
    async with asyncio.TaskGroup() as group:
        while True:
            for member in rng.sample(members, len(members)):
                await asyncio.sleep(rng.uniform(0.5, 1.5) * every)
                if member not in gone:
                    gone.add(member)
                    await asyncio.to_thread(member.kill)
                    group.create_task(_revive(member, gone, rng.uniform(*away)))


async def _revive(member: Member, gone: set[Member], seconds: float) -> None:
    await asyncio.sleep(seconds)
    member.start()
    await member.until_ready()
    gone.discard(member)


async def kill_runtimes(gateway: int, every: float, rng: random.Random) -> None:
    """The bundled servers, which the gateway starts again itself, until cancelled."""
    while True:
        await asyncio.sleep(rng.uniform(0.5, 1.5) * every)
        if victims := sorted(tree(gateway, processes()) - {gateway}):
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(victims), signal.SIGKILL)
