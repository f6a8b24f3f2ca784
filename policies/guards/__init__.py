"""Guards of texts: what is forbidden, and which part of a stream may leave.

folding.py    a text in the form that is compared, with the place of each character in the original
readable.py   a text without lone surrogates, which files of other encodings have
compiled.py   guards of the file in the form in which they run
selection.py  which guards a request meets
finders.py    what finds forbidden spans: words, patterns, keys and tokens, addresses
secrets.py    the shapes of keys and tokens
unread.py     bodies that are clear without a look at their texts
personal/     personal data: placeholders, and values in their place again
masking.py    a text behind rules: releases what is settled, with masks in the place of forbidden spans
"""
