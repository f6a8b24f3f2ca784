"""The allowance of frames that belong to no call: time and responses that the peer accepts refill it."""

CALM = 2000
"""Frames that belong to no call and that a peer may send at once."""
CALM_EARNED = 10 * CALM
"""The maximum of the allowance: window updates follow a burst of DATA with a delay."""
CALM_PER_SECOND = 200.0
CALM_PER_CALL = 8
CALM_PER_FRAME = 4
FORGIVING_BYTES = 4096
"""Bytes of sent DATA that allow one more frame: a peer sends two window updates for each frame, and pings."""
