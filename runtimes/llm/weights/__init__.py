"""Model files: their sources and their formats.

store.py             from the name of a model to a path; file_kind.py: what a wrong file is
loader.py            weights and configuration of a Llama model; encoder_loader.py: of an encoder
gguf_checkpoint.py   a GGUF file: gguf_metadata.py, gguf_tensors.py, gguf_blocks.py and gguf_config.py read its parts
safetensors_checkpoint.py  a folder of safetensors; safetensors_files.py: its files
hugging_face_config.py     the shape of a model, from config.json
matrix.py            a weight matrix, whole or quantized; quantize.py: weights in few bits, at load
"""
