"""Exceptions for users: what happened, where in their program, why, and how to fix it.

Names and hierarchy are those of `jax.errors`.  Each docstring shows a program that fails and the one that works.
"""
from __future__ import annotations

from typing import Any

from aot import source as _source


class AotError(Exception):
    """Base of the errors this package raises on its own account.

    Args:
      message: what went wrong, naming the argument or operation.
      hint: what to do about it; printed on its own line after `hint:`.
      source: the user's position (`aot.source.user_frame()`), printed as `at: file:line (function)`.
    """

    def __init__(self, message: str, hint: str | None = None, source: _source.Source = None):
        self.message, self.hint, self.source = message, hint, source
        super().__init__(message)

    def __str__(self) -> str:
        lines = [self.message]
        if self.source is not None:
            lines.append(_at(self.source))
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


def _at(source: _source.Source) -> str:
    text = _source.code_line(source)
    return f"at: {_source.where(source)}" + (f"\n      {text}" if text else "")


class JAXTypeError(TypeError):
    """An argument of the wrong type."""


class JAXIndexError(IndexError):
    """An index of the wrong type or out of range."""


class JaxprTypeError(TypeError):
    """A jaxpr whose equations do not fit together; see `config.enable_checks`."""


class InconclusiveDimensionOperation(Exception):
    """A comparison of symbolic dimensions that has no answer for all their values."""


def _about(tracer: Any) -> str:
    """The traced value in words: its type, and for an argument of the traced function which one it is."""
    aval = getattr(tracer, "aval", tracer)
    return f"traced {aval}" if not isinstance(aval, str) else aval


def _origin(tracer: Any) -> str:
    """Where the value comes from, when its trace knows; a line of its own or nothing."""
    describe = getattr(tracer, "origin", None)
    text = describe() if callable(describe) else describe
    return f"\nThe value is {text}." if text else ""


def _why(tracer: Any, otherwise: str) -> str:
    """Why a value is not given out; under grad it is known, but would lose its derivative."""
    concrete = getattr(tracer, "concrete", None)
    if concrete is not None and concrete() is not None:
        return ("the function is being differentiated, and what is computed from the plain number would silently have no "
                "derivative; if that is wanted, apply aot.lax.stop_gradient to the value first.")
    return otherwise


def _explain(what: str, tracer: Any, why: str, fix: str) -> str:
    here = _source.user_frame()
    place = f"\n{_at(here)}" if here else ""
    return f"{what}: {_about(tracer)}.{place}{_origin(tracer)}\nWhy: {why}\nTo fix this: {fix}"


class ConcretizationTypeError(JAXTypeError):
    """A concrete value was needed where only a traced one, known by shape and dtype, exists.

    Fails, because under `jit` the size of the result would depend on data:

        @aot.jit
        def f(n): return aot.numpy.zeros(n)

    Works, because `n` is a Python integer when the function is traced:

        @functools.partial(aot.jit, static_argnums=0)
        def f(n): return aot.numpy.zeros(n)
    """

    def __init__(self, tracer: Any, context: str = ""):
        self.tracer = tracer
        super().__init__(_explain(
            "a concrete value is needed, but this one is abstract"
            + (f" ({context.strip().rstrip('.')})" if context else ""), tracer,
            _why(tracer, "the function is being traced, so its arrays stand for any values of their shape and dtype."),
            "make the argument static (static_argnums, static_argnames), compute it outside of the traced function, "
            "or derive it from x.shape instead of from values."))


class NonConcreteBooleanIndexError(JAXIndexError):
    """A boolean mask that is traced was used as an index: the size of the result would depend on its values.

    Fails under `jit`: `x[x > 0].sum()`.  Works: `aot.numpy.where(x > 0, x, 0).sum()`.
    """

    def __init__(self, tracer: Any):
        super().__init__(_explain(
            "a boolean mask used as an index must be concrete, but this one is abstract", tracer,
            "how many elements are selected depends on the mask's values, and shapes must be known while tracing.",
            "use aot.numpy.where(mask, x, other) to keep the shape, pass a fixed size= to aot.numpy.nonzero, or "
            "index outside of the traced function."))


class TracerArrayConversionError(JAXTypeError):
    """numpy, or another library that needs real memory, was given a traced value.

    Fails: `numpy.sin(x)` under `jit`.  Works: `aot.numpy.sin(x)`.
    """

    def __init__(self, tracer: Any):
        super().__init__(_explain(
            "numpy asked for the data of an abstract array (through __array__)", tracer,
            _why(tracer, "a traced array has no data yet: numpy functions, and functions of libraries built on numpy, "
                         "need it."),
            "call the same function from aot.numpy or aot.lax, or wrap host code in aot.pure_callback. To index a "
            "numpy array by a traced value, convert it first with aot.numpy.asarray."))


class TracerIntegerConversionError(JAXTypeError):
    """A traced value was used where Python needs an integer: `range(n)`, a list index, a shape.

    Fails: `for i in range(n)` under `jit`.  Works: `aot.lax.fori_loop(0, n, body, init)`, or a static `n`.
    """

    def __init__(self, tracer: Any):
        super().__init__(_explain(
            "Python asked for an integer (through __index__), but got an abstract array", tracer,
            "Python needs the integer's value now, and the value is known only when the compiled function runs.",
            "make the argument static, use aot.lax.fori_loop for loops with traced bounds, or convert the list that "
            "is indexed with aot.numpy.asarray."))


class TracerBoolConversionError(ConcretizationTypeError):
    """Python control flow (`if`, `while`, `and`, `assert`) asked a traced value whether it is true.

    Fails under `jit`:

        def f(x): return x if x > 0 else -x

    Works: `aot.numpy.where(x > 0, x, -x)`, or `aot.lax.cond(x > 0, lambda x: x, lambda x: -x, x)`.
    """

    def __init__(self, tracer: Any):
        self.tracer = tracer
        JAXTypeError.__init__(self, _explain(
            "Python asked whether an abstract array is true (through __bool__)", tracer,
            "Python's if, while, and, or, not and assert need the value now, and it is known only when the compiled "
            "function runs.",
            "use aot.numpy.where or aot.lax.cond to choose between values, aot.lax.while_loop to loop, & | ~ for "
            "logic, or make the argument static."))


class UnexpectedTracerError(JAXTypeError):
    """A traced value outlived its trace: it was kept in a global, an attribute or a closure, and used later.

    Fails:

        saved = []
        @aot.jit
        def f(x): saved.append(x * 2); return x
        f(1.0); saved[0] + 1

    Works: return every value that is needed outside.
    """

    def __init__(self, msg: Any):
        super().__init__(msg if isinstance(msg, str) else _leak_message(msg))


def _leak_message(tracer: Any, made_at: _source.Source = None) -> str:
    made = f"\nIt was made {_at(made_at)}." if made_at is not None else ""
    return _explain(
        "a traced value was used after the function that made it had been traced", tracer,
        "it was saved by a side effect (a global, an attribute, a list, a closure) instead of being returned." + made,
        "return the value from the function (or, if the rule of a custom derivative closed over it, pass it to the "
        "function as an argument); to find the place, run with aot.check_tracer_leaks(True).")


def leaked(tracer: Any, made_at: _source.Source = None) -> UnexpectedTracerError:
    """The error for using `tracer` after its trace ended; `made_at` is where its operation was traced."""
    return UnexpectedTracerError(_leak_message(tracer, made_at))


class KeyReuseError(JAXTypeError):
    """A random key was consumed twice; raised under `aot.debug_key_reuse(True)`.

    Fails: `random.normal(key) + random.uniform(key)`.  Works: `k1, k2 = random.split(key)` and one of them each.
    """


def __getattr__(name: str) -> Any:
    """`JaxRuntimeError` is jaxlib's own class, fetched when asked for so that this module stays cheap to import."""
    if name in ("JaxRuntimeError", "XlaRuntimeError"):
        from aot import xla

        return xla.XlaRuntimeError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
