"""Pictures and sound as tensors. Needs an extra.

images.py   JPEG, PNG and WebP → tensor: resizing, layout, datatype, normalisation
sound.py    WAV → tensor: channels, sampling rate, datatype
resample.py changes the sampling rate of sound
encoded.py  the bytes of a file from a BYTES tensor, base64 or a data URL

Files come from clients, and Pillow's decoders are native code. Callers therefore run these functions in a worker
process: `offload.run(max(size, offload.LARGE), decode_images, …)` bounds memory and time, and a crash ends only the
worker. Sizes are checked before anything is decompressed.
"""
