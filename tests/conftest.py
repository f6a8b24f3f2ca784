"""What every test shares."""

import asyncio

# Without a loop set, asyncio makes one when the test runner asks for "the current one", and nobody closes it.
asyncio.set_event_loop(None)
