"""A real Chromium, driven over the DevTools protocol without a further package.

chromium.py  the process
devtools.py  the connection: commands and events
page.py      a page as a person uses it, and its defects
keyboard.py  a page that a person uses with the keyboard alone
axe.py       the accessibility checker
"""
