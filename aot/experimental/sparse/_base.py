"""What every sparse array is: a shape, some arrays, and operators that are defined by format."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from aot.trace import typeof

Array = Any


def _refused(method: str, symbol: str = "") -> Callable:
    def refuse(self, *args, **kwargs):
        raise NotImplementedError(f"{type(self).__name__}.{method} is not implemented{symbol}. hint: BCOO has most operations; "
                                  "todense() gives a dense array")
    refuse.__name__ = method
    return refuse


class JAXSparse:
    """Base class of sparse arrays.  A format says how it flattens and how it becomes dense; the rest is optional."""

    __slots__ = ("shape", "__weakref__")
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 200    # the operators of numpy and of dense arrays give way

    data: Array
    shape: tuple[int, ...]
    nse: Any
    dtype: Any

    def __init__(self, args: tuple[Array, ...], *, shape: Sequence[int]):
        self.shape = tuple(shape)

    size = property(lambda self: math.prod(self.shape))
    ndim = property(lambda self: len(self.shape))
    T = property(lambda self: self.transpose())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __repr__(self) -> str:
        name = type(self).__name__
        try:
            described = f"{self.dtype.name}{list(self.shape)}, nse={self.nse}{self._layout()}"
        except Exception:
            return f"{name}(<invalid>)"
        return f"{name}({described})"

    def _layout(self) -> str:
        """What the representation says of the layout."""
        return "".join(f", {n}={getattr(self, n)}" for n in ("n_batch", "n_dense") if getattr(self, n, 0))

    def tree_flatten(self) -> tuple[tuple, Any]: raise NotImplementedError("tree_flatten")

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Any) -> Any: raise NotImplementedError("tree_unflatten")

    def todense(self) -> Array: raise NotImplementedError("todense")

    def transpose(self, axes: Any = None) -> Any: raise NotImplementedError("transpose")

    def block_until_ready(self) -> Any:
        """Wait for the arrays; returns self."""
        for x in self.tree_flatten()[0]:
            x.block_until_ready()
        return self

    sum = _refused("sum")
    __neg__, __pos__ = _refused("__neg__"), _refused("__pos__")
    __add__, __radd__ = _refused("__add__"), _refused("__radd__")
    __sub__, __rsub__ = _refused("__sub__"), _refused("__rsub__")
    __mul__, __rmul__ = _refused("__mul__"), _refused("__rmul__")
    __matmul__, __rmatmul__ = _refused("__matmul__"), _refused("__rmatmul__")
    __getitem__ = _refused("__getitem__")


def dtype_of(x: Any) -> Any:
    """The dtype of an array or of what stands for one, such as a ShapeDtypeStruct."""
    return x.dtype if hasattr(x, "dtype") else typeof(x).dtype
