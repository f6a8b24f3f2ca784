"""The list of models in a repository that was made for another server, if there is one. Then only its models are
served."""

from __future__ import annotations

from pathlib import Path

from runtimes.tensor.configuration import ovms_list, tfserving_list, torchserve_store
from runtimes.tensor.configuration.listed import FolderList, ListError


def list_of(root: Path) -> FolderList | None:
    """The list in a repository; None if it is a plain folder of models. Blocks for the disk.

    A list that cannot be read is one refused entry, with the name of its file.
    """
    readers = [
        (tfserving_list.FILE, tfserving_list.read, (root / tfserving_list.FILE).is_file()),
        (ovms_list.FILE, ovms_list.read, ovms_list.is_list(root)),
        (torchserve_store.FILE, torchserve_store.read, torchserve_store.is_store(root)),
    ]
    there = [(file, read) for file, read, is_there in readers if is_there]
    if not there:
        return None
    if len(there) > 1:
        files = " and ".join(file for file, _ in there)
        return FolderList(refused={there[0][0]: f"the repository has {files}: keep one of them"}, is_read=False)
    ((file, read),) = there
    try:
        return read(root)
    except ListError as error:
        return FolderList(refused={file: str(error)}, is_read=False)
