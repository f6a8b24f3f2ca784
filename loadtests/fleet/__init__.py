"""Every kind of server behind one gateway, asked all the time and killed at random: see `loadtests/soak_fleet.py`."""
