"""What every test shares."""

import asyncio

from hypothesis import settings

# Without a loop set, asyncio makes one when the test runner asks for "the current one", and nobody closes it.
asyncio.set_event_loop(None)

# How long one example takes says how busy the machine is, not whether it is right.
settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")
