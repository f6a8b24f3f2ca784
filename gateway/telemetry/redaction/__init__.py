"""Removes secrets and personal data from what is recorded or exported.

texts.py    texts and JSON without the kinds of data that an operator names
secrets.py  secrets in texts, by their forms
streams.py  the texts of a streamed answer
"""
