"""A folder to deploy: the artifact, the loader as one file, pinned requirements, a script and a Dockerfile."""
from __future__ import annotations

import os
import shutil
import sys
import tempfile

import aot_runtime
from aot import __version__
from aot.errors import AotError

REQUIREMENTS = """\
# What aot_runtime.py needs.  The executables in {file} load in this version of jaxlib only; another one would
# compile the portable program instead.
jaxlib=={jaxlib}
numpy>=1.26
ml_dtypes>=0.5
"""
MAIN = '''\
"""Prints what {file} holds and, where inputs were recorded when it was built, runs it on them."""
import os

import aot_runtime

artifact = aot_runtime.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "{file}"))
print(artifact.explain())
for name in artifact:
    recorded = artifact.golden(name)
    if recorded is not None:
        for y in artifact[name].call_flat(recorded[0]):
            print(name, aot_runtime.short(y.dtype, y.shape))
'''
DOCKERFILE = """\
FROM python:{python}-slim
WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
CMD ["python", "main.py"]
"""
IGNORE = "__pycache__\n"


def write(path: str | os.PathLike, folder: str | os.PathLike | None = None) -> str:
    """Write the folder, all of it or nothing; returns its path.  Default: the artifact's name without `.aot`.

    Every member is checked first.  Raises AotError for a folder that exists, ArtifactError for a damaged artifact."""
    path = os.fspath(path)
    target = os.path.abspath(os.fspath(folder or path.removesuffix(".aot") + "_bundle"))
    if os.path.exists(target):
        raise AotError(f"{target}: exists already", hint="remove it, or choose another folder with -o")
    loaded = aot_runtime.load(path)
    loaded.verify()
    try:
        temporary = tempfile.mkdtemp(prefix=".bundle-", dir=os.path.dirname(target))
    except OSError as e:
        raise AotError(f"{target}: cannot be written: {e.strerror or e}") from None
    try:
        _fill(temporary, path, loaded)
        os.chmod(temporary, 0o755)
        os.rename(temporary, target)
    except OSError as e:
        raise AotError(f"{target}: cannot be written: {e.strerror or e}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _fill(folder: str, path: str, loaded: aot_runtime.Artifact) -> None:
    file = os.path.basename(path)
    shutil.copyfile(path, os.path.join(folder, file))
    if external := loaded.manifest.get("external"):
        shutil.copyfile(os.path.join(os.path.dirname(path), external["file"]), os.path.join(folder, external["file"]))
    shutil.copyfile(aot_runtime.__file__, os.path.join(folder, "aot_runtime.py"))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    values = {"file": file, "jaxlib": loaded.manifest["toolchain"].get("jaxlib", ""), "python": python,
              "version": __version__}
    for name, text in {"requirements.txt": REQUIREMENTS, "main.py": MAIN, "Dockerfile": DOCKERFILE,
                       ".dockerignore": IGNORE}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text.format(**values))
