"""The fronts of files and batches.

form.py       an uploaded form, parsed as it arrives
files.py      `/v1/files`
openai.py     `/v1/batches`
anthropic.py  `/v1/messages/batches`
uploads.py    the largest bodies of uploads
content.py    the content of a file as a stream
pages.py      pages of lists
"""
