"""Commands for servers that are not in the configuration.

address.py      the server's address and key, from the command line
probe.py        `headrace probe`
conformance.py  `headrace conformance`
imports.py      `headrace import`
prices.py       `headrace prices`
examination.py  one run of the suite, and the table of its results
"""
