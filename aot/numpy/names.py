"""Constants, numpy's own types and text functions, and descriptions of dtypes."""
from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from numpy import array_repr as array_repr
from numpy import array_str as array_str
from numpy import can_cast as can_cast
from numpy import dtype as dtype
from numpy import iterable as iterable
from numpy import save as save
from numpy import savez as savez
from numpy.exceptions import ComplexWarning as ComplexWarning

from aot.array import Array

character, complexfloating, flexible, floating = np.character, np.complexfloating, np.flexible, np.floating
generic, inexact, integer, number = np.generic, np.inexact, np.integer, np.number
object_, signedinteger, unsignedinteger = np.object_, np.signedinteger, np.unsignedinteger
finfo, iinfo = ml_dtypes.finfo, ml_dtypes.iinfo
ndarray = Array
pi, e, inf, nan, euler_gamma, newaxis = math.pi, math.e, math.inf, math.nan, 0.5772156649015329, None


def printoptions(*args: Any, **kwargs: Any) -> Any:
    """Context manager for how arrays print; the options are numpy's."""
    return np.printoptions(*args, **kwargs)


def set_printoptions(*args: Any, **kwargs: Any) -> None:
    """Set how arrays print; the options are numpy's."""
    np.set_printoptions(*args, **kwargs)


def get_printoptions() -> Any:
    """How arrays print at the moment."""
    return np.get_printoptions()


class _NamespaceInfo:
    """Answers to the inspection functions of the array API standard."""

    def capabilities(self) -> dict[str, Any]:
        """Shapes cannot depend on data in traced functions."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> None:
        """Arrays are not bound to a device unless asked."""
        return None

    def devices(self) -> list[Any]:
        """All devices of all platforms."""
        import aot

        return [None, *aot.devices()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The dtypes of arrays made without one."""
        from aot import dtypes

        return {"real floating": dtypes.default_float_dtype(), "complex floating": dtypes.default_complex_dtype(),
                "integral": dtypes.default_int_dtype(), "indexing": dtypes.default_int_dtype()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The dtypes of the standard that exist here, by name."""
        from aot import dtypes
        from aot.config import config

        wide = ("int64", "uint64", "float64", "complex128")
        found = {d.name: d for d in (dtypes.BOOL, *dtypes.SIGNED, *dtypes.UNSIGNED, dtypes.F32, dtypes.F64, *dtypes.COMPLEX)
                 if config.enable_x64 or d.name not in wide}
        return found if kind is None else {name: d for name, d in found.items() if dtypes.isdtype(d, kind)}


def __array_namespace_info__() -> _NamespaceInfo:
    """The inspection functions of the array API standard."""
    return _NamespaceInfo()
