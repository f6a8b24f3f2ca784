"""The fronts of files and batches.

files.py      `/v1/files`: uploaded forms, parsed as they arrive, and the content of files
openai.py     `/v1/batches`
anthropic.py  `/v1/messages/batches`, and the largest bodies of uploads
"""
