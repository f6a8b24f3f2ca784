"""Model files: their sources and their formats.

store.py             from the name of a model to a path
loader.py            weights and configuration of a Llama model
gguf_checkpoint.py   a GGUF file: its shape and tensors; gguf_metadata.py: its fields; gguf_blocks.py: its blocks
generation_config.py the ends of answers and the sampling that the files declare
safetensors_files.py a folder of safetensors, and the shape of its model from config.json
"""
