"""Model files: their sources and their formats.

store.py             from the name of a model to a path
loader.py            weights and configuration of a Llama model
gguf_checkpoint.py   a GGUF file: its shape and tensors; gguf_metadata.py: its fields; gguf_blocks.py: its blocks
safetensors_files.py a folder of safetensors; hugging_face_config.py: the shape of a model, from config.json
quantize.py          weights in few bits, at load
"""
