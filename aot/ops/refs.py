"""Primitives of mutable array references: making, reading, writing, adding to and freezing them.

get and its siblings take a reference and the operands of a view (aot/ops/views.py); `view` has its indexers.
"""
from __future__ import annotations

from typing import Any, Sequence

from aot import dtypes
from aot.ops.families import kind
from aot.ops.views import View, links, paired, part, put, selected, take, view_of
from aot.source import api_boundary
from aot.trace import Eqn, Primitive, ShapedArray, Zero, bind, bind1, is_zero, tangent_aval, typeof
from aot.trace.refs import AbstractRef, Ref, is_ref
from aot.transforms.discharge import REF, Cell


class RefPrimitive(Primitive):
    """What makes, reads or writes references."""

    def effects(self, **params): return frozenset((REF,))

    def discharge(self, args, **params):
        """On cells; a reference that is none stays."""
        return self.on(*args, **params) if type(args[0]) is Cell else bind(self, *args, **params)

    def on(self, cell: Cell, *args: Any, **params: Any) -> list: raise self.missing("on")


def _no_tangents(dots: Sequence) -> list:
    return [Zero(tangent_aval(typeof(x))) for x in dots]


# ---- making and ending -----------------------------------------------------------------------------------------------

class NewRef(RefPrimitive):
    """A reference to a new array.  Under transforms it gets a tangent, and a batch, at once: what is written later may have.

    tangent: it holds tangents, which `LinearTrace` stages whatever the first ones are."""
    name = "new_ref"
    batch_consts = makes_ref = True

    def uses_axis(self, name, params): return True
    def shown(self, params): return {"kind": params["kind"], "memory_space": None}
    def infer(self, x, *, kind, tangent): return [AbstractRef(x, None, kind)]
    def discharge(self, args, *, kind, tangent): return [Cell(AbstractRef(typeof(args[0]), None, kind), args[0])]

    def evaluate(self, args, params):
        from aot.array import asarray
        x = asarray(args[0])
        return [Ref(AbstractRef(x.aval, None, params["kind"]), x)]

    def jvp(self, primals, tangents, *, kind, tangent):
        from aot.transforms.jvp import instantiate_zero
        ref, = bind(self, *primals, kind=kind, tangent=False)
        t, = tangents
        if tangent_aval(typeof(primals[0])).dtype == dtypes.float0:
            return [ref], [Zero(tangent_aval(ref.aval))]
        return [ref], bind(self, instantiate_zero(t), kind=kind, tangent=True)

    def vmap(self, axis, args, dims, **params):
        from aot.transforms.vmap import to_dim
        return bind(self, to_dim(axis, args[0], dims[0], 0), **params), [0]


class Freeze(RefPrimitive):
    """The contents of a reference that is not used any more."""
    name = "freeze"

    def infer(self, ref): return [ref.inner_aval]

    def on(self, cell):
        value = _alive(cell).value
        cell.ended = "frozen"
        return [value]

    def jvp(self, primals, tangents):
        outs = bind(self, *primals)
        return outs, _no_tangents(outs) if is_zero(tangents[0]) else bind(self, *tangents)

    def vmap(self, axis, args, dims): return bind(self, *args), dims


class FreeRef(Freeze):
    """The end of a reference."""
    name = "free_ref"

    def infer(self, ref): return []

    def on(self, cell):
        _alive(cell).ended = "freed"
        return []

    def jvp(self, primals, tangents):
        for x in (*primals, *tangents):
            if not is_zero(x):
                bind(self, x)
        return [], []

    def vmap(self, axis, args, dims): return bind(self, *args), []


def _alive(cell: Cell, write: bool = False) -> Cell:
    if cell.ended == "freed" or cell.ended and write:
        raise ValueError(f"a reference of type {cell.aval} is used after it was {cell.ended}. hint: read it before; freeze "
                         "returns its contents")
    return cell


# ---- reading and writing ---------------------------------------------------------------------------------------------

class Get(RefPrimitive):
    """What a view selects of the contents: (ref, *operands)."""
    name = "get"

    def infer(self, ref, *operands, view): return [selected(ref, view, operands)]
    def on(self, cell, *operands, view): return [take(_alive(cell).value, links(view, operands))]

    def jvp(self, primals, tangents, *, view):
        outs = bind(self, *primals, view=view)
        return outs, _no_tangents(outs) if is_zero(tangents[0]) else bind(self, tangents[0], *primals[1:], view=view)

    def vmap(self, axis, args, dims, *, view):
        """Of the whole contents, as arrays."""
        from aot.transforms.vmap import vmap_flat
        x, *operands = args
        return vmap_flat(lambda x, *xs: [take(x, links(view, xs))], axis, [bind1(self, x, view=()), *operands], dims)

    def text(self, e, outs, ref, *operands): return f"{outs[0]} <- {ref}{view_text(e, operands)}"


class Write(RefPrimitive):
    """Change what a view selects: (ref, value, *operands) -> what was there, of swap."""
    add = False

    def infer(self, ref, value, *operands, view): return [] if self.add else [selected(ref, view, operands)]

    def on(self, cell, value, *operands, view):
        old = [] if self.add else [take(_alive(cell).value, links(view, operands))]
        _alive(cell, True).set(put(cell.value, links(view, operands), value, self.add))
        return old

    def jvp(self, primals, tangents, *, view):
        from aot.transforms.jvp import instantiate_zero
        ref, value, *_ = tangents
        if is_zero(ref) and not is_zero(value):
            raise ValueError(f"{self.name} writes a differentiated value into a reference of type {primals[0].aval} that is "
                             "not differentiated. hint: make the reference inside of the differentiated function, or write "
                             "lax.stop_gradient(value)")
        outs = bind(self, *primals, view=view)
        return outs, _no_tangents(outs) if is_zero(ref) else bind(
            self, ref, instantiate_zero(value), *primals[2:], view=view)

    def vmap(self, axis, args, dims, *, view):
        """On the whole contents, as arrays."""
        from aot.transforms.vmap import to_dim, vmap_flat
        ref, value, *operands = args
        if dims[0] is None:
            raise ValueError(f"{self.name} writes a mapped value, or at a mapped position, into a reference of type {ref.aval} "
                             "that is not mapped. hint: pass the reference as an argument that vmap maps")
        def changed(x, value, *xs):
            return [put(x, links(view, xs), value, self.add), *([] if self.add else [take(x, links(view, xs))])]
        (new, *old), out_dims = vmap_flat(changed, axis, [bind1(get_p, ref, view=()), value, *operands], dims)
        bind(swap_p, ref, to_dim(axis, new, out_dims[0], dims[0]), view=())
        return old, out_dims[1:]


class Swap(Write):
    name = "swap"

    def text(self, e, outs, ref, value, *operands):
        at = f"{ref}{view_text(e, operands)}"
        return f"{outs[0]}, {at} <- {at}, {value}" if outs[0] else f"{at} <- {value}"


class AddUpdate(Write):
    name, add = "addupdate", True

    def text(self, e, outs, ref, value, *operands): return f"{ref}{view_text(e, operands)} += {value}"


def view_text(e: Eqn, operands: Sequence[str]) -> str:
    """The view of an equation as it is written in jaxprs, e.g. `[0,:,i:i+2]`."""
    view, shape, out = e.params["view"], e.invars[0].aval.shape, ""
    avals = [x.aval for x in e.invars[len(e.invars) - len(operands):]]
    for (indexer, xs), (_, types) in zip(links(view, operands), links(view, avals)):
        out += f"[{','.join(map(_entry_text, indexer, paired(indexer, xs)[0], shape))}]"
        shape = part(shape, indexer, [a.shape for a in paired(indexer, types)[1]])
    return out or "[...]"


def _entry_text(e: Any, start: Any, n: int) -> str:
    if e is None:
        return start
    if e.start is None:
        return f"{start}:{start}+{e.size}" + (f":{e.stride}" if e.stride != 1 else "")
    stop = start + e.size * e.stride
    return f"{start or ''}:{stop if stop < n else ''}" + (f":{e.stride}" if e.stride != 1 else "")


new_ref_p, freeze_p, free_ref_p = NewRef(), Freeze(), FreeRef()
get_p, swap_p, addupdate_p = Get(), Swap(), AddUpdate()


# ---- functions of views ----------------------------------------------------------------------------------------------

def read(view: View) -> Any:
    """The contents of a view."""
    return bind1(get_p, view.ref, *view.operands, view=view.indexers)


def write(view: View, value: Any, what: str = "set") -> Any:
    """Put a value into a view -> what was there."""
    return bind1(swap_p, view.ref, _strong(_fitting(view, value, what)), *view.operands, view=view.indexers)


def increase(view: View, value: Any) -> None:
    """Add a value to a view."""
    bind(addupdate_p, view.ref, _fitting(view, value, "addupdate"), *view.operands, view=view.indexers)


def _fitting(view: View, value: Any, what: str) -> Any:
    """A value to write: weakly typed ones of the same kind get the dtype of the reference."""
    if is_ref(value):
        raise ValueError(f"{what}: a reference cannot be stored in another one. hint: read it, as by ref[...]")
    a, want = typeof(value), view.inner_aval
    if a.weak_type and a.dtype != want.dtype and kind(a.dtype).replace("u", "i") == kind(want.dtype).replace("u", "i"):
        from aot.ops.elementwise import convert
        value, a = convert(value, want.dtype), want.update(shape=a.shape)
    if a.shape != want.shape or a.dtype != want.dtype:
        raise ValueError(f"{what}: a value of type {a.str_short(False)} was given where {want.str_short(False)} of a "
                         f"reference of type {view.ref.aval} is selected. hint: values are not broadcast or converted, use "
                         "jnp.broadcast_to and astype")
    return value


def _strong(value: Any) -> Any:
    """What is read after a write in the same program is strongly typed, as in jax."""
    from aot.ops.elementwise import convert
    a = typeof(value)
    return convert(value, a.dtype) if a.weak_type else value


# ---- users' functions ------------------------------------------------------------------------------------------------

@api_boundary
def new_ref(init_val: Any, *, memory_space: Any = None, kind: str | None = None) -> Any:
    """A mutable reference to a new array with the value of init_val.

    Raises TypeError where that is no array or number; NotImplementedError for a memory_space, of which devices have one."""
    _one_memory("new_ref", memory_space)
    if is_ref(init_val):
        raise TypeError("new_ref takes an array, got a reference. hint: pass its contents, ref[...]")
    try:
        typeof(init_val)
    except TypeError:
        raise TypeError(f"new_ref takes an array or a number, got a value of type {type(init_val)}. hint: a reference is to "
                        "one array; make one for each leaf with tree.map(new_ref, x)") from None
    return bind1(new_ref_p, init_val, kind=kind, tangent=False)


@api_boundary
def empty_ref(ty: Any, memory_space: Any = None) -> Any:
    """A reference to a new array of the type of ty (an array, or a ShapeDtypeStruct), of zeros: write before reading."""
    from aot.ops.shape import zeros
    _one_memory("empty_ref", memory_space)
    a = typeof(ty)
    return bind1(new_ref_p, zeros(ShapedArray(a.shape, a.dtype)), kind=None, tangent=False)


def _one_memory(what: str, memory_space: Any) -> None:
    if memory_space is not None:
        raise NotImplementedError(f"{what}(memory_space={memory_space!r}) is not supported. hint: leave it out; arrays are in "
                                  "the memory of the device")


def _whole(ref: Any, what: str) -> Any:
    if type(ref) is View or not is_ref(ref):
        raise TypeError(f"{what} takes a reference that new_ref has made, got {type(ref)}")
    return ref


@api_boundary
def freeze(ref: Any) -> Any:
    """The contents of a reference, which is not to be used any more."""
    return bind1(freeze_p, _whole(ref, "freeze"))


@api_boundary
def free_ref(ref: Any) -> None:
    """End a reference, which is not to be used any more."""
    bind(free_ref_p, _whole(ref, "free_ref"))


@api_boundary
def get(ref: Any, idx: Any = None) -> Any:
    """ref[idx]; of all of it without idx."""
    return read(view_of(ref, "get").narrowed(idx))


@api_boundary
def set(ref: Any, idx: Any, value: Any) -> None:
    """ref[idx] = value."""
    write(view_of(ref, "set").narrowed(idx), value)


@api_boundary
def swap(ref: Any, idx: Any, value: Any, _function_name: str = "ref_swap") -> Any:
    """ref[idx] = value -> what was there."""
    return write(view_of(ref, "swap").narrowed(idx), value, "swap")


@api_boundary
def addupdate(ref: Any, idx: Any, x: Any) -> None:
    """ref[idx] += x."""
    increase(view_of(ref, "addupdate").narrowed(idx), x)


__all__ = ["addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set", "swap"]
