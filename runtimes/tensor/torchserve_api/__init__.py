"""What handlers of TorchServe import from `ts`, and how they are called.

loading.py         a handler of an archive, loaded as TorchServe loads it
offered.py         the modules of `ts` that handlers import, where the package itself is not installed
context.py         what a handler sees of its model and of its requests
base_handler.py    `BaseHandler`
vision_handler.py  pictures as tensors; image_classifier.py, image_segmenter.py, object_detector.py: its handlers
text_handler.py    texts as numbers; text_classifier.py: its handler
utilities.py       the functions of `ts.utils` and `ts.handler_utils`
requests.py        the parts of a request, and the bytes of an answer
"""
