"""What every test shares."""

import asyncio
import os

from hypothesis import HealthCheck, settings

# Without a loop set, asyncio makes one when the test runner asks for "the current one", and nobody closes it.
asyncio.set_event_loop(None)

# How long examples take says how busy the machine is, not whether they are right.
settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A change fails for what it changes: its examples are those of every run before. Elsewhere each run looks for new ones.
settings.register_profile("ci", settings.get_profile("headrace"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "headrace")
