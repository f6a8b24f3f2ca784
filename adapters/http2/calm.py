"""How many frames that carry no call a peer may send: a budget that time and accepted answers refill."""

CALM = 2000
"""Frames without a call that a peer may send at once."""
CALM_EARNED = 10 * CALM
"""The most that can be saved: windows answer a burst of DATA later."""
CALM_PER_SECOND = 200.0
CALM_PER_CALL = 8
CALM_PER_FRAME = 4
FORGIVING_BYTES = 4096
"""Bytes of sent DATA that allow one more frame: a peer sends two windows for each frame, and pings."""
