"""Files that libraries open in their own native code, of which Python tells nothing."""
from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

#: module -> the ends of names of the files that it reads
READERS = {"h5py": (".h5", ".hdf5", ".keras"), "tables": (".h5", ".hdf5"), "netCDF4": (".nc", ".nc4"),
           "pyarrow": (".parquet", ".feather", ".arrow"), "cv2": (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"),
           "sentencepiece": (".model",), "tokenizers": (".json",), "tensorflow": (".tfrecord", ".tflite", ".pb")}

#: files that mark a folder, all of which tensorstore (of orbax) may read
STORES = {"manifest.ocdbt", ".zarray", "zarr.json", "_METADATA", "_CHECKPOINT_METADATA"}

LEFT_OUT = {".git", "node_modules", "__pycache__"}


@contextlib.contextmanager
def watching(opened: set[str]) -> Iterator[None]:
    """Add to `opened` what safetensors opens in the block."""
    try:
        import safetensors
    except ImportError:
        yield
        return
    plain = safetensors.safe_open

    def safe_open(filename: Any, *args: Any, **kwargs: Any) -> Any:
        opened.add(os.path.abspath(os.fsdecode(filename)))
        return plain(filename, *args, **kwargs)
    safetensors.safe_open = safe_open
    try:
        yield
    finally:
        safetensors.safe_open = plain


def possible(root: str, output: str) -> set[str]:
    """Files below the root that modules of this process may have read: all whose names are such as they read."""
    ends = tuple({end for module, ends in READERS.items() if module in sys.modules for end in ends})
    marks = STORES if "tensorstore" in sys.modules else set()
    found: set[str] = set()
    stores: set[str] = set()
    if not ends and not marks:
        return found
    skipped = os.path.abspath(os.path.join(root, output))
    for folder, folders, files in os.walk(os.path.abspath(root)):
        folders[:] = [f for f in folders if f not in LEFT_OUT and os.path.join(folder, f) != skipped
                      and not os.path.exists(os.path.join(folder, f, "pyvenv.cfg"))]
        if os.path.dirname(folder) in stores or marks.intersection(files):
            stores.add(folder)
        found.update(os.path.join(folder, f) for f in files if folder in stores or f.lower().endswith(ends))
    return found
