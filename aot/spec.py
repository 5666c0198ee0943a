"""The text form of arguments, as the command line takes them.

    f32[32,784]   bf16[]   key[]        an array, or a random key, of which only type and shape matter
    1.5   3   True   None               a Python value
    {"w": f32[3], "b": f32[]}           containers nest: dicts (keys may go unquoted), [lists], (tuples)
    weights.npz   x.npy   m.safetensors the arrays of a file; `FILE:NAME` is one of them

Files of several arrays become a dict.  Names that are key paths (`['layers'][0]['w']`, as `aot run` writes them) are
nested again.
"""
from __future__ import annotations

import ast
import os
import re
import struct
import zipfile
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from aot.errors import AotError

FILES = (".npz", ".npy", ".safetensors")
_TOKEN = re.compile(r"""\s*(?:
    (?P<array>[A-Za-z]\w*\[[^\]\[(){}"']*\])
  | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<punct>[\[\](){},:])
  | (?P<word>[^\s\[\](){},:"']+\.(?:npz|npy|safetensors):[^\s\[\](){},:"']+ | [^\s\[\](){},:"']+)
)""", re.VERBOSE)
_SHORT = re.compile(r"(f|bf|i|s|u|c)(\d+)(_\w+)?")
_LONG = {"f": "float", "bf": "bfloat", "i": "int", "s": "int", "u": "uint", "c": "complex"}


class SpecError(AotError):
    """An argument description that cannot be understood."""


@dataclass(frozen=True)
class Array:
    """An array of which only shape and dtype are given.  dtype is numpy's name, or "key" for random keys."""
    shape: tuple[int, ...]
    dtype: str


def parse(text: str) -> Any:
    """A spec -> tree of `Array`, numpy arrays (from files) and Python scalars.  Raises SpecError."""
    if text.strip().endswith(FILES) and not text.strip().startswith(("{", "[", "(")):
        return load_file(text.strip())
    tokens = _tokens(text)
    value, rest = _value(tokens, 0, text)
    if rest != len(tokens):
        raise _bad(text, tokens[rest][2], "expected the end")
    return value


def _tokens(text: str) -> list[tuple[str, str, int]]:
    tokens, at = [], 0
    while text[at:].strip():
        m = _TOKEN.match(text, at)
        if m is None:
            raise _bad(text, at, "this character makes no sense here")
        kind = m.lastgroup or ""
        tokens.append((kind, m[kind], m.start(kind)))
        at = m.end()
    return tokens


def _bad(text: str, at: int, why: str) -> SpecError:
    return SpecError(f"{why}:\n  {text}\n  {' ' * at}^",
                     hint='write f32[32,784], {"w": f32[3], "b": f32[]}, 1.5, key[] or a .npz/.npy/.safetensors file')


def _value(tokens: list, i: int, text: str) -> tuple[Any, int]:
    if i >= len(tokens):
        raise _bad(text, len(text), "the spec ends too early")
    kind, word, at = tokens[i]
    if kind == "array":
        return _array(word, text, at), i + 1
    if kind == "punct" and word in "{[(":
        return _container(word, tokens, i + 1, text)
    if kind in ("word", "string"):
        return _word(word, kind, text, at), i + 1
    raise _bad(text, at, f"unexpected {word!r}")


def _container(opening: str, tokens: list, i: int, text: str) -> tuple[Any, int]:
    closing, items, comma = {"{": "}", "[": "]", "(": ")"}[opening], [], False
    while not (i < len(tokens) and tokens[i][1] == closing and tokens[i][0] == "punct"):
        if items and not comma:
            raise _bad(text, tokens[i][2] if i < len(tokens) else len(text), f"expected ',' or '{closing}'")
        item, i = _pair(tokens, i, text) if opening == "{" else _value(tokens, i, text)
        items.append(item)
        comma = i < len(tokens) and tokens[i][:2] == ("punct", ",")
        i += comma
    if opening == "{":
        twice = [k for n, (k, _) in enumerate(items) if k in [other for other, _ in items[:n]]]
        if twice:
            raise _bad(text, text.index(opening), f"the key {twice[0]!r} is given twice")
        return dict(items), i + 1
    return (items if opening == "[" else tuple(items) if len(items) != 1 or comma else items[0]), i + 1


def _pair(tokens: list, i: int, text: str) -> tuple[tuple[Any, Any], int]:
    kind, word, at = tokens[i] if i < len(tokens) else ("", "", len(text))
    if kind not in ("word", "string"):
        raise _bad(text, at, "expected a key")
    if tokens[i + 1:i + 2] and tokens[i + 1][:2] == ("punct", ":"):
        value, i = _value(tokens, i + 2, text)
        return (_key(word, kind), value), i
    raise _bad(text, at + len(word), "expected ':' after the key")


def _key(word: str, kind: str) -> Any:
    if kind == "string":
        return ast.literal_eval(word)
    return int(word) if re.fullmatch(r"-?\d+", word) else word


def _word(word: str, kind: str, text: str, at: int) -> Any:
    name = ast.literal_eval(word) if kind == "string" else word
    if name.partition(":")[0].endswith(FILES):
        return load_file(name)
    try:
        value = float(word) if word.lstrip("+-") in ("nan", "inf") else ast.literal_eval(word)
    except (ValueError, SyntaxError):
        value = name
    if isinstance(value, str):
        if text[at + len(word):].lstrip().startswith("["):
            raise _bad(text, at + len(word), f"the dimensions of {name} are not closed by ']'")
        hint = f", did you mean {name}[]?" if _is_dtype(name) else ""
        raise _bad(text, at, f"{name!r} is neither an array, a number nor a file{hint}")
    return value


def _array(word: str, text: str, at: int) -> Array:
    name, _, dims = word[:-1].partition("[")
    shape = tuple(d.strip() for d in dims.split(",") if d.strip())
    if not all(d.isascii() and d.isdigit() for d in shape):
        raise _bad(text, at, "dimensions must be numbers")
    if len(shape) and prod(max(int(d), 1) for d in shape) >= 1 << 60:
        raise _bad(text, at, "no machine holds an array of this size")
    return Array(tuple(map(int, shape)), _dtype_name(name, text, at))


def _dtype_name(name: str, text: str, at: int) -> str:
    if not _is_dtype(name):
        raise _bad(text, at, f"unknown element type {name!r}")
    return "bool" if name == "pred" else _long(name)


def _long(name: str) -> str:
    m = _SHORT.fullmatch(name)
    return f"{_LONG[m[1]]}{m[2]}{m[3] or ''}" if m else name


def _is_dtype(name: str) -> bool:
    import ml_dtypes
    long = _long(name)
    return name in ("key", "bool", "pred") or hasattr(ml_dtypes, long) \
        or long[-1:].isdigit() and isinstance(getattr(np, long, None), type)


# ---- files ---------------------------------------------------------------------------------------------------------

def load_file(path: str) -> Any:
    """The arrays of a .npy, .npz or .safetensors file (`FILE:NAME` for one of them).  Raises SpecError."""
    path, _, name = (path, "", "") if os.path.exists(path) else path.partition(":")
    try:
        arrays = _read(path)
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file") from None
    except (OSError, ValueError, KeyError, struct.error, EOFError, zipfile.BadZipFile) as e:
        raise SpecError(f"{path}: cannot be read as {os.path.splitext(path)[1][1:]}: {e}") from None
    if name and not isinstance(arrays, dict):
        raise SpecError(f"{path}: a single array, which has no name {name!r}")
    if not isinstance(arrays, dict) or not name:
        return nest(arrays) if isinstance(arrays, dict) else arrays
    if name not in arrays:
        raise SpecError(f"{path}: no array {name!r}", hint=f"it has: {', '.join(arrays)}")
    return arrays[name]


def _read(path: str) -> Any:
    if path.endswith(".safetensors"):
        with open(path, "rb") as f:
            return read_safetensors(f.read())
    with open(path, "rb") as f:
        if not f.read(6).startswith((np.lib.format.MAGIC_PREFIX, b"PK")):     # numpy would take it for a pickle
            raise ValueError("it is something else")
    loaded = np.load(path, allow_pickle=False)
    return {k: _numbers(v, k) for k, v in loaded.items()} if path.endswith(".npz") else _numbers(loaded)


def _numbers(x: np.ndarray, name: str = "") -> np.ndarray:
    """An array as it is computed with: of numbers, with bytes in this machine's order.  Raises ValueError.

    numpy writes the types of ml_dtypes as bytes without a type; those of two bytes can only be bfloat16."""
    import ml_dtypes
    if x.dtype == np.dtype("V2"):
        return x.view(ml_dtypes.bfloat16)
    if x.dtype.kind not in "biufc":
        hint = ", as numpy writes 8-bit floats and the like; use .safetensors" if x.dtype == np.dtype("V1") else ""
        raise ValueError(f"{name and name + ': '}elements of type {x.dtype} are no numbers{hint}")
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def read_safetensors(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file.  Raises ValueError."""
    from aot_runtime import AotError as Damaged
    from aot_runtime import tensors
    try:
        return tensors(memoryview(data), "")
    except Damaged as e:
        raise ValueError(e.what) from None


def write_arrays(path: str, arrays: dict[str, np.ndarray]) -> None:
    """Write named arrays to a .npz or .safetensors file, or a single one to a .npy file, atomically."""
    from aot import artifact
    from aot.files import replacing
    if not path.endswith(FILES):
        raise SpecError(f"{path}: unknown kind of file", hint=f"use one of {', '.join(FILES)}")
    if path.endswith(".npy") and len(arrays) != 1:
        raise SpecError(f"{path}: .npy holds one array, there are {len(arrays)}", hint="use .npz or .safetensors")
    with replacing(path) as f:
        if path.endswith(".npz"):
            np.savez(f, **arrays)  # type: ignore[arg-type]
        elif path.endswith(".npy"):
            np.save(f, next(iter(arrays.values())))
        else:
            f.writelines(artifact.pack_tensors(arrays))


_STEP = re.compile(r"""\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]|\.(\w+)""")


def nest(arrays: dict[str, Any]) -> Any:
    """{"['a'][0]": x} -> {'a': [x]}.  Names that are not key paths stay as they are."""
    paths = {name: [_step(m) for m in _STEP.finditer(name)] for name in arrays}
    if not arrays or any("".join(m[0] for m in _STEP.finditer(n)) != n or n.startswith(".") for n in arrays):
        return arrays
    root: dict = {}
    for name, path in paths.items():
        node = root
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node[path[-1]] = arrays[name]
    return _lists(root)


def _step(m: re.Match) -> Any:
    return int(m[1]) if m[1] is not None else m[2] or m[3] or m[4] or ""


def _lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if list(node) == list(range(len(node))):
        return [_lists(v) for v in node.values()]
    return {k: _lists(v) for k, v in node.items()}
