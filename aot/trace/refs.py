"""Mutable array references: their type, and the concrete ones, which hold an array.

What reads and writes them are primitives (aot/ops/refs.py).  A traced reference is a tracer whose aval is an AbstractRef.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn
from weakref import WeakValueDictionary

from aot.trace.aval import AbstractValue, ShapedArray, _typeof


class AbstractRef(AbstractValue):
    """The type of a reference to an array of type `inner_aval`.  Immutable; equal by value."""
    __slots__ = ("inner_aval", "memory_space", "kind")

    def __init__(self, inner_aval: ShapedArray, memory_space: Any = None, kind: Any = None):
        self.inner_aval, self.memory_space, self.kind = inner_aval, memory_space, kind

    shape = property(lambda self: self.inner_aval.shape)
    dtype = property(lambda self: self.inner_aval.dtype)
    ndim = property(lambda self: len(self.inner_aval.shape))
    size = property(lambda self: self.inner_aval.size)

    def _refuse(self) -> Any:
        """What every rule for arrays asks for, so that none takes a reference for one."""
        refuse_as_array(self, "given where an array is expected")

    weak_type = mlir = physical = property(_refuse)

    def __eq__(self, other):
        return self is other or (type(other) is AbstractRef and self.inner_aval == other.inner_aval
                                 and self.memory_space == other.memory_space and self.kind == other.kind)

    def __hash__(self): return hash(("ref", self.inner_aval, self.kind))

    def update(self, **fields: Any) -> AbstractRef:
        """A reference to an array with another shape, dtype or weak_type."""
        return AbstractRef(self.inner_aval.update(**fields), self.memory_space, self.kind)

    def str_short(self, short_dtypes: bool = True) -> str:
        return f"Ref{{{self.inner_aval.str_short(short_dtypes)}}}"

    def __str__(self): return self.str_short(False)
    def __repr__(self): return self.str_short(False)


_typeof[AbstractRef] = lambda x: x


def refuse_as_array(aval: AbstractRef, how: str) -> NoReturn:
    """TypeError where a reference is used as if it were an array."""
    raise TypeError(f"a reference of type {aval} was {how}. hint: read it first, as ref[...]")


def is_ref(x: Any) -> bool:
    """Whether x is a reference, concrete or traced."""
    return type(getattr(x, "aval", None)) is AbstractRef


def refuse_ref(x: Any, what: str) -> None:
    """ValueError where a traced function returns a reference."""
    if is_ref(x):
        raise ValueError(f"{what} returned a mutable array reference of type {x.aval}, but mutable array references cannot be "
                         "returned. hint: return its contents, ref[...]; what is written to arguments the caller sees")


class _RefMeta(type):
    """isinstance(x, Ref) also holds for traced references."""

    def __instancecheck__(cls, x): return is_ref(x)


class Ref(metaclass=_RefMeta):
    """A mutable reference to an array: `ref[...]` reads it, `ref[...] = x` writes it.  Made by `new_ref`.

    Indices are integers, slices with a step of at least 1, `ds(start, size)`, integer arrays and `...`; what is written has
    exactly the shape and dtype of what these select.  A compiled function that takes a reference, or closes over it, updates
    it in place."""
    __slots__ = ("value", "aval", "shared", "__weakref__")
    owner: Any = None           # the trace that makes what is done at once; set by aot/trace/core.py

    def __init__(self, aval: AbstractRef, value: Any):
        self.aval, self.value, self.shared = aval, value, True      # shared: others may hold the array, too
        _live[id(self)] = self

    def hold(self, value: Any) -> None:
        """Refer to an array that nobody else has, with the weak type that the reference has."""
        inner = self.aval.inner_aval
        self.value = value if value.aval.weak_type == inner.weak_type else type(value)(value.buf, inner)
        self.shared = False

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)
    sharding = property(lambda self: self.value.sharding)
    format = property(lambda self: self.value.format)
    committed = property(lambda self: self.value.committed)

    def __getitem__(self, index: Any) -> Any: return whole(self)[index]
    def __setitem__(self, index: Any, value: Any) -> None: whole(self)[index] = value

    @property
    def at(self) -> Any:
        """`ref.at[index]` is a view: a reference to a part of this one."""
        return whole(self).at

    def addupdate(self, x: Any, idx: Any = ()) -> None:
        """self[idx] += x."""
        whole(self).addupdate(x, idx)

    def __copy__(self) -> Ref: return self

    def __deepcopy__(self, memo: Any) -> Ref:
        """Another reference, with the same contents."""
        self.shared = True
        return Ref(self.aval, self.value)

    def unsafe_buffer_pointer(self) -> int: return self.value.unsafe_buffer_pointer()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __array__(self, *args: Any, **kwargs: Any) -> Any: self.aval._refuse()
    __iter__ = None

    def __repr__(self): return "Ref" + repr(self.value)[len("Array"):]


_live: WeakValueDictionary[int, Ref] = WeakValueDictionary()


def holders(buffers: Iterable) -> list[Ref]:
    """The references whose contents are in one of these."""
    if not _live:
        return []
    wanted, refs = set(map(id, buffers)), [r() for r in _live.valuerefs()]
    return [r for r in refs if r is not None and id(r.value.buf) in wanted]


def whole(ref: Any) -> Any:
    """The view of all of a reference, which has the operations of references."""
    from aot.ops.views import View
    return View(ref)
