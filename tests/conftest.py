"""What every test shares."""

import asyncio

from hypothesis import HealthCheck, settings

# Without a loop set, asyncio makes one when the test runner asks for "the current one", and nobody closes it.
asyncio.set_event_loop(None)

# How long examples take says how busy the machine is, not whether they are right.
settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")
