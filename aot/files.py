"""Writing files that are whole or not there.  Nothing here imports numpy or jaxlib."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO

from aot.errors import AotError


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when the block ends, and vanishes when it is left by an exception.

    Raises AotError when it cannot be written.
    """
    if os.path.exists(path) and not os.path.isfile(path):       # replacing /dev/null would harm the machine
        what = "a directory" if os.path.isdir(path) else "not an ordinary file"
        raise AotError(f"{path}: cannot be written: it is {what}", hint="name a file")
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as f:
            yield f
        os.replace(temporary, path)
    except OSError as e:
        hint = "make its folder first" if isinstance(e, FileNotFoundError) else None
        raise AotError(f"{path}: cannot be written: {e.strerror or e}", hint) from None
    finally:
        with contextlib.suppress(OSError):      # gone after success; Ctrl-C is no OSError
            os.unlink(temporary)


def is_file_name(name: str) -> bool:
    """Whether a file in any folder, or a member of an artifact, may be called so: one line, and no path."""
    return name.isprintable() and bool(name) and not name.startswith(".") and "/" not in name and "\\" not in name


def write_text(path: str, text: str) -> None:
    """Replace a file by this text, or leave it as it was."""
    with replacing(path) as f:
        f.write(text.encode())
