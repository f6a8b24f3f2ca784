"""Pictures and sound as tensors. Needs an extra.

images.py   JPEG, PNG and WebP → tensor: resizing, layout, datatype, normalisation
sound.py    WAV → tensor: channels, sampling rate, datatype
encoded.py  the bytes of a file from a BYTES tensor, base64 or a data URL

Files come from clients, and Pillow's decoders are native code. Callers therefore run these functions in a worker
process: `offload.decode_file(offload.PICTURE, cost, decode_images, …)` bounds memory and processor time, and a crash
ends only the worker. `decoding_cost` and the decoders check sizes and counts before anything is decompressed.
"""
