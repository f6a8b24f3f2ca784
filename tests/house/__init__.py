"""The shape of the code base: maps, folders, imports and names. The rules are in CONTRIBUTING.md.

tree.py       the product's modules, parsed
imports.py    the import graph and its circles
names.py      public names of modules, and the words in them
sentences.py  the sentences of pages, and the long ones
*.txt         exceptions, one a line; they may only become fewer
"""
