"""Every kind of server behind one gateway, under constant load and killed at random: see `loadtests/soaks/fleet.py`."""
