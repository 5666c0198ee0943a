"""Functions with a stack of transformations on them, each of which may leave an auxiliary result behind.

A transformation is a generator, which yields (args, kwargs) for the function inside, is sent its results, and yields its own;
or, as `transformation2`, a function of the function inside.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class StoreException(Exception):
    """An auxiliary result read before the function ran, or written twice."""


class Store:
    """Where the auxiliary result of a transformation is kept."""

    def __init__(self, again: bool = False):
        self.full, self.value, self.again = False, None, again

    def store(self, value: Any) -> None:
        """Keep the value; StoreException where there is one (another one, if the function may run again)."""
        if self.full and not (self.again and self.value == value):
            raise StoreException("the auxiliary result is there already: the function ran twice")
        self.full, self.value = True, value

    def reset(self) -> None: self.full, self.value = False, None

    @property
    def val(self) -> Any:
        if not self.full:
            raise StoreException("there is no auxiliary result yet: the function has not run")
        return self.value


class WrappedFun:
    """A function under transformations, the last of which sees the arguments first."""

    def __init__(self, f: Callable, call: Callable | None = None, stores: tuple = (), params: Any = (), debug_info: Any = None):
        self.f, self.stores, self.params, self.debug_info = f, stores, params, debug_info
        self._call = f if call is None else call

    @property
    def __name__(self) -> str: return getattr(self.f, "__name__", "<unnamed function>")

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Run it on args."""
        return self._call(*args, **kwargs)

    def with_call(self, call: Callable, store: Store | None = None) -> WrappedFun:
        """The same under one more transformation."""
        return WrappedFun(self.f, call, self.stores if store is None else (*self.stores, store), self.params, self.debug_info)

    def with_unknown_names(self) -> WrappedFun: return self

    def __repr__(self) -> str: return f"Wrapped function: {self.__name__}"


def wrap_init(f: Callable, params: Any = None, *, debug_info: Any = None) -> WrappedFun:
    """A function without transformations, called with params as keywords."""
    return WrappedFun(f, functools.partial(f, **params) if params else None, params=tuple(sorted((params or {}).items())),
                      debug_info=debug_info)


def _run(generator: Callable, static: tuple, inside: Callable, args: tuple, kwargs: dict) -> Any:
    running = generator(*static, *args, **kwargs)
    inner_args, inner_kwargs = next(running)
    return running.send(inside(*inner_args, **inner_kwargs))


def transformation(generator: Callable) -> Callable[..., WrappedFun]:
    """generator(*static, *args) as a transformation (fun, *static) -> fun."""
    def apply(fun: WrappedFun, *static: Any) -> WrappedFun:
        return fun.with_call(lambda *args, **kwargs: _run(generator, static, fun.call_wrapped, args, kwargs))
    return functools.wraps(generator)(apply)


def transformation_with_aux(generator: Callable, use_eq_store: bool = False) -> Callable[..., tuple[WrappedFun, Callable]]:
    """The same of a generator whose result is a pair: (fun, *static) -> (fun, aux), where aux() is the second of the pair."""
    def apply(fun: WrappedFun, *static: Any) -> tuple[WrappedFun, Callable]:
        store = Store(use_eq_store)

        def call(*args: Any, **kwargs: Any) -> Any:
            result, aux = _run(generator, static, fun.call_wrapped, args, kwargs)
            store.store(aux)
            return result
        return fun.with_call(call, store), lambda: store.val
    return functools.wraps(generator)(apply)


def transformation2(function: Callable) -> Callable[..., WrappedFun]:
    """function(f, *static, *args) as a transformation (fun, *static) -> fun."""
    def apply(fun: WrappedFun, *static: Any) -> WrappedFun:
        return fun.with_call(functools.partial(function, fun.call_wrapped, *static))
    return functools.wraps(function)(apply)


def transformation_with_aux2(function: Callable, use_eq_store: bool = False) -> Callable[..., tuple[WrappedFun, Callable]]:
    """function(f, store, *static, *args), which calls store.store(aux): (fun, *static) -> (fun, aux)."""
    def apply(fun: WrappedFun, *static: Any) -> tuple[WrappedFun, Callable]:
        store = Store(use_eq_store)
        return fun.with_call(functools.partial(function, fun.call_wrapped, store, *static), store), lambda: store.val
    return functools.wraps(function)(apply)


def merge_linear_aux(aux1: Callable, aux2: Callable) -> tuple[bool, Any]:
    """(True, aux) of the one function of two that ran first, (False, aux) where it was the second."""
    try:
        out = aux1()
    except StoreException:
        return False, aux2()
    try:
        aux2()
    except StoreException:
        return True, out
    raise StoreException("both functions ran")


def cache(call: Callable, *, explain: Any = None) -> Callable:
    """call(fun, *args), remembered by the function under fun and args."""
    @functools.cache
    def remembered(f: Callable, params: Any, *args: Any) -> Any:
        return call(wrap_init(f, dict(params)), *args)

    def cached(fun: WrappedFun, *args: Any) -> Any:
        return call(fun, *args) if fun.stores else remembered(fun.f, fun.params, *args)
    cached.cache_clear = remembered.cache_clear     # type: ignore[attr-defined]
    return cached


__all__ = ["StoreException", "WrappedFun", "cache", "merge_linear_aux", "transformation", "transformation2",
           "transformation_with_aux", "transformation_with_aux2", "wrap_init"]
