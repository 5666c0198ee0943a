"""The primitives of cond and switch, and of while_loop and fori_loop with dynamic bounds."""
from __future__ import annotations

from typing import Callable, Sequence

import numpy as np

from aot import dtypes
from aot.lower.emitter import TOKEN, is_ordered
from aot.ops.call import Holder, merge_captured, with_dots
from aot.ops.families import kind
from aot.trace import (
    Eqn,
    Jaxpr,
    ShapedArray,
    Var,
    Zero,
    captured_by,
    dce,
    eval_jaxpr,
    is_linear,
    is_zero,
    opened,
    stage_closed,
    tangent_aval,
    typeof,
)
from aot.transforms.discharge import contents, discharged, update


def split(xs: Sequence, *sizes: int) -> list[list]:
    """Consecutive pieces of these sizes, and the rest."""
    out, xs = [], list(xs)
    for n in sizes:
        out.append(xs[:n])
        xs = xs[n:]
    return [*out, xs]


def instantiate(t):
    from aot.transforms.jvp import instantiate_zero
    return instantiate_zero(t)


def nonzero_dots(tangents: Sequence) -> list[bool]:
    return [not is_zero(t) and typeof(t).dtype != dtypes.float0 for t in tangents]


def select_outputs(jaxpr: Jaxpr, keep: Sequence[bool]) -> Jaxpr:
    return Jaxpr(jaxpr.invars, jaxpr.eqns, [v for v, k in zip(jaxpr.outvars, keep) if k], jaxpr.debug_name)


# ---- cond --------------------------------------------------------------------------------------------------------

class Cond(Holder):
    """Run branches[index] on the operands.  All branches take the same operands and return the same types."""
    name = "cond"

    def infer(self, index, *avals, branches, **_): return _join_weak(branches)

    def shown(self, params): return {"branches": params["branches"]}

    def opened(self, args, params):
        held = [captured_by(b) for b in params["branches"]]
        branches, captured = merge_captured(list(map(opened, params["branches"])), held)
        return [args[0], *captured, *args[1:]], {"branches": tuple(branches)}

    def jvp(self, primals, tangents, *, branches):
        from aot.transforms.jvp import jvp_jaxpr
        index, *xs = primals
        nonzero = nonzero_dots(tangents[1:])
        out_nonzero = [any(col) for col in zip(*(jvp_jaxpr(b, nonzero)[1] for b in branches))]
        both = tuple(jvp_jaxpr(b, nonzero, out_nonzero)[0] for b in branches)
        dots = [t for t, nz in zip(tangents[1:], nonzero) if nz]
        outs = self.bind(index, *xs, *dots, branches=both)
        return with_dots(outs, out_nonzero, branches[0].out_avals)

    def linearize(self, primals, tangents, *, branches):
        """Each branch returns its own residuals and zeros in place of the others'."""
        from aot.transforms.linearize import linearize_jaxpr
        index, *xs = primals
        nonzero = nonzero_dots(tangents[1:])
        first = [linearize_jaxpr(b, nonzero) for b in branches]
        out_nonzero = [any(col) for col in zip(*(f.out_nonzero for f in first))]
        lins = [linearize_jaxpr(b, nonzero, out_nonzero) for b in branches]
        n_out = len(branches[0].outvars)
        residual_avals = [[_where_aval(f, w) for w in f.residuals] for f in lins]
        fwd = tuple(_with_residuals(f, i, residual_avals, n_out) for i, f in enumerate(lins))
        lin = tuple(_among_residuals(f.lin, i, residual_avals) for i, f in enumerate(lins))
        outs = self.bind(index, *xs, branches=fwd)
        dots = [t for t, nz in zip(tangents[1:], nonzero) if nz]
        lin_outs = self.bind(index, *outs[n_out:], *dots, branches=lin) if any(out_nonzero) else []
        return with_dots([*outs[:n_out], *lin_outs], out_nonzero, branches[0].out_avals)

    def transpose(self, cts, index, *args, branches):
        from aot.transforms.linearize import transpose_jaxpr
        linear = [is_linear(x) for x in args]
        nonzero_cts = [not is_zero(c) for c in cts]
        backs = tuple(transpose_jaxpr(b, linear, nonzero_cts, True)[0] for b in branches)
        outs = iter(self.bind(index, *[x for x in args if not is_linear(x)], *[c for c in cts if not is_zero(c)],
                              branches=backs))
        return [None, *[next(outs) if lin else None for lin in linear]]

    def vmap(self, axis, args, dims, *, branches):
        from aot.ops import elementwise as ew
        from aot.transforms.vmap import batch_jaxpr, to_dim
        (index, *xs), (d, *ds) = args, dims
        if d is not None:           # every lane may take another branch: run them all and select
            xs = [to_dim(axis, x, e, 0) for x, e in zip(xs, ds)]
            which = index if len(branches) == 2 and kind(typeof(index).dtype) == "b" else ew.clamp(
                np.int32(0), index, np.int32(len(branches) - 1))
            if len(branches) == 2 and kind(typeof(which).dtype) != "b":
                which = ew.ne(which, np.int32(0))
            results = []
            for b in branches:
                batched, _ = batch_jaxpr(b, axis, [0] * len(xs), [True] * len(b.outvars))
                results.append(eval_jaxpr(batched, xs))
            return [ew.select_n(_along_rows(which, cases[0]), *cases) for cases in zip(*results)], [0] * len(results[0])
        in_dims = [None if e is None else 0 for e in ds]
        xs = [x if e is None else to_dim(axis, x, e, 0) for x, e in zip(xs, ds)]
        loose = [batch_jaxpr(b, axis, in_dims, [False] * len(b.outvars))[1] for b in branches]
        force = [any(e is not None for e in col) for col in zip(*loose)]
        batched = tuple(batch_jaxpr(b, axis, in_dims, force)[0] for b in branches)
        return self.bind(index, *xs, branches=batched), [0 if f else None for f in force]

    def discharge(self, args, *, branches):
        index, *xs = args
        written = frozenset(i for b in branches for i in discharged(b, xs)[1])
        pure = tuple(discharged(b, xs, written)[0] for b in branches)
        return update(xs, sorted(written), self.bind(index, *contents(xs), branches=pure))

    def dce(self, eqn, needed):
        if all(needed):
            return eqn
        branches = tuple(b.memo(("keep", tuple(needed)), lambda b=b: select_outputs(b, needed))
                         for b in eqn.params["branches"])
        pairs = [b.memo("dce", lambda b=b: dce(b)) for b in branches]
        used = [any(col) for col in zip(*(u for _, u in pairs))]
        branches = tuple(Jaxpr([v for v, u in zip(j.invars, used) if u], j.eqns, j.outvars, j.debug_name)
                         for j, _ in pairs)
        return Eqn(self, [eqn.invars[0], *[x for x, u in zip(eqn.invars[1:], used) if u]],
                   [v for v, n in zip(eqn.outvars, needed) if n], {"branches": branches}, eqn.source)

    def lower(self, e, ins, outs, index, *xs, branches):
        ordered = is_ordered(*branches)
        before = e.token if ordered else None
        is_bool = kind(ins[0].dtype) == "b"
        if is_bool and len(e.module.devices or ()) > 1:         # the partitioner looks into stablehlo.case alone
            index, is_bool = e.convert(index, ins[0], i32 := ins[0].update(dtype=np.dtype("int32"))), False
            ins = [i32, *ins[1:]]
        blocks = []
        for b in branches[::-1] if is_bool else branches:       # stablehlo.if has its true branch first
            if ordered:
                e.token = before
            blocks.append(_branch_block(e, b, xs, ordered))
        types = [a.mlir for a in outs] + [TOKEN] * ordered
        results = e.ops(f'"stablehlo.{"if" if is_bool else "case"}"({index}) ({", ".join(blocks)}) : ({ins[0].mlir}) -> '
                        f"({', '.join(types)})", len(types))
        if ordered:
            *results, e.token = results
        return results


def _along_rows(x, like):
    """One value for each row of `like`, in its shape."""
    from aot.ops.shape import broadcast_in_dim
    shape = typeof(like).shape
    return broadcast_in_dim(x, shape, (0,)) if len(shape) > 1 else x


def _join_weak(branches) -> list[ShapedArray]:
    return [a if all(b.out_avals[i].weak_type == a.weak_type for b in branches) else a.update(weak_type=False)
            for i, a in enumerate(branches[0].out_avals)]


def _branch_block(e, jaxpr: Jaxpr, xs: Sequence[str], ordered: bool) -> str:
    """A region without arguments; values outside are visible inside."""
    with e.block() as lines:
        outs, types = e.jaxpr(jaxpr, xs), [a.mlir for a in jaxpr.out_avals]
        if ordered:
            outs, types = [*outs, e.token], [*types, TOKEN]
        e.finish(outs, types)
    return "{\n" + "\n".join(lines) + "\n}"


def _where_aval(f, where) -> ShapedArray:
    side, i = where
    return f.fwd.in_avals[i] if side == "in" else f.fwd.out_avals[i]


def _with_residuals(f, which: int, residual_avals, n_out: int) -> Jaxpr:
    def fwd(*ins):
        from aot.ops.shape import zeros
        outs = eval_jaxpr(f.fwd, ins)
        mine = f.pick(ins, outs)
        res = [v for i, avals in enumerate(residual_avals)
               for v in (mine if i == which else [_filler(a, zeros) for a in avals])]
        return [*outs[:n_out], *res]
    return stage_closed(fwd, f.fwd.in_avals, f.fwd.debug_name)


def _filler(a: ShapedArray, zeros):
    if isinstance(a.dtype, np.dtype):
        return zeros(a)
    from aot.ops.random import random_wrap
    return random_wrap(zeros(a.physical), impl=a.dtype.impl)


def _among_residuals(lin: Jaxpr, which: int, residual_avals) -> Jaxpr:
    """The same linear jaxpr, taking every branch's residuals and using its own."""
    invars: list[Var] = []
    n = len(residual_avals[which])
    for i, avals in enumerate(residual_avals):
        invars += lin.invars[:n] if i == which else [Var(a) for a in avals]
    return Jaxpr([*invars, *lin.invars[n:]], lin.eqns, lin.outvars, lin.debug_name)


cond_p = Cond()


# ---- while -------------------------------------------------------------------------------------------------------

class While(Holder):
    """Repeat body while cond holds: (cond consts, body consts, carry) -> carry."""
    name = "while"

    def infer(self, *avals, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts):
        return body_jaxpr.out_avals

    def opened(self, args, params):
        cond, body, nc = params["cond_jaxpr"], params["body_jaxpr"], params["cond_nconsts"]
        for_cond, for_body = captured_by(cond), captured_by(body)
        return [*for_cond, *args[:nc], *for_body, *args[nc:]], dict(
            cond_jaxpr=opened(cond), body_jaxpr=opened(body), cond_nconsts=nc + len(for_cond),
            body_nconsts=params["body_nconsts"] + len(for_body))

    def jvp(self, primals, tangents, *, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts):
        from aot.transforms.jvp import jvp_jaxpr
        cond_consts, consts, carry = split(primals, cond_nconsts, body_nconsts)
        _, const_dots, carry_dots = split(tangents, cond_nconsts, body_nconsts)
        const_nz, carry_nz = nonzero_dots(const_dots), nonzero_dots(carry_dots)
        while True:
            both, out_nz = jvp_jaxpr(body_jaxpr, const_nz + carry_nz, carry_nz)
            if out_nz == carry_nz:
                break
            carry_nz = [a or b for a, b in zip(carry_nz, out_nz)]
        dots = [instantiate(t) for t, nz in zip(carry_dots, carry_nz) if nz]
        const_dots = [t for t, nz in zip(const_dots, const_nz) if nz]
        n, m = len(consts), len(const_dots)
        # jvp body takes consts, carry, const dots, carry dots; while wants consts first
        body = reorder_inputs(both, [n, len(carry), m, len(dots)], [0, 2, 1, 3])
        cond = widen_inputs(cond_jaxpr, [v.aval for v in both.invars[n + len(carry) + m:]])
        outs = self.bind(*cond_consts, *consts, *const_dots, *carry, *dots, cond_jaxpr=cond, body_jaxpr=body,
                         cond_nconsts=cond_nconsts, body_nconsts=n + m)
        return with_dots(outs, carry_nz, body_jaxpr.out_avals)

    def linearize(self, primals, tangents, **params):
        """Forward-differentiable only: primal outputs by themselves, tangents by the joint loop, staged whole."""
        outs = self.bind(*primals, **params)
        if not any(nonzero_dots(tangents)):
            return outs, [Zero(tangent_aval(typeof(o))) for o in outs]
        return outs, self.jvp(primals, tangents, **params)[1]

    def transpose(self, cts, *args, **params):
        raise ValueError("Reverse-mode differentiation does not work for lax.while_loop or lax.fori_loop with dynamic "
                         "start/stop values. hint: use lax.scan, or fori_loop with static start and stop; or "
                         "differentiate forwards (jvp, jacfwd)")

    def vmap(self, axis, args, dims, *, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts):
        from aot.transforms.vmap import batch_jaxpr, to_dim
        cond_dims, const_dims, carry_dims = split(dims, cond_nconsts, body_nconsts)
        front = [None if d is None else 0 for d in dims]
        c_front, b_front, carry = split(front, cond_nconsts, body_nconsts)
        batched = [d is not None for d in carry]
        pred_batched = False
        while True:
            carry_d = [0 if b else None for b in batched]
            pred_batched = batch_jaxpr(cond_jaxpr, axis, [*c_front, *carry_d], [False])[1][0] is not None
            force = [True] * len(batched) if pred_batched else batched
            body, out_dims = batch_jaxpr(body_jaxpr, axis, [*b_front, *carry_d], force)
            new = [b or d is not None for b, d in zip(force, out_dims)]
            if new == batched:
                break
            batched = new
        carry_d = [0 if b else None for b in batched]
        values = [to_dim(axis, x, d, 0) if d is not None else x for x, d in zip(args, dims)]
        cond_consts, consts, init = split(values, cond_nconsts, body_nconsts)
        init = [to_dim(axis, x, 0 if f is not None else None, 0) if b else x for x, f, b in zip(init, carry, batched)]
        cond, _ = batch_jaxpr(cond_jaxpr, axis, [*c_front, *carry_d], [pred_batched])
        if pred_batched:
            return self._vmap_with_mask(axis, cond, body, cond_consts, consts, init), [0] * len(init)
        outs = self.bind(*cond_consts, *consts, *init, cond_jaxpr=cond, body_jaxpr=body, cond_nconsts=cond_nconsts,
                         body_nconsts=body_nconsts)
        return outs, carry_d

    def _vmap_with_mask(self, axis, cond, body, cond_consts, consts, init):
        """Lanes stop at different times: go on while any lane does, and keep the values of those that are done."""
        from aot.ops import elementwise as ew
        from aot.ops.reductions import reduce_or
        nc, nb = len(cond_consts), len(consts)

        def any_lane(*vals):
            return [reduce_or(eval_jaxpr(cond, vals)[0], (0,))]

        def masked(*vals):
            cc, bc, carry = split(vals, nc, nb)
            going, = eval_jaxpr(cond, [*cc, *carry])
            new = eval_jaxpr(body, [*bc, *carry])
            return [ew.select(_along_rows(going, n), n, o) for n, o in zip(new, carry)]
        carry_avals = [typeof(x) for x in init]
        new_cond = stage_closed(any_lane, [*cond.in_avals[:nc], *carry_avals])
        new_body = stage_closed(masked, [*cond.in_avals[:nc], *body.in_avals[:nb], *carry_avals])
        return self.bind(*cond_consts, *cond_consts, *consts, *init, cond_jaxpr=new_cond, body_jaxpr=new_body,
                         cond_nconsts=nc, body_nconsts=nc + nb)

    def discharge(self, args, *, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts):
        """What is written is carried.  If cond writes, so is its result: it runs first and at the end of each step."""
        cond_consts, consts, carry = split(args, cond_nconsts, body_nconsts)
        (cond, in_cond), (body, in_body) = discharged(cond_jaxpr, [*cond_consts, *carry]), discharged(
            body_jaxpr, [*consts, *carry])
        cells = list({id(c): c for c in (*[cond_consts[i] for i in in_cond], *[consts[i] for i in in_body])}.values())
        nc, nb, n = cond_nconsts, body_nconsts, len(cells)

        def call(jaxpr, operands, written, values, state):
            """Outputs, and the contents afterwards."""
            now = dict(zip(map(id, cells), state[:n]))
            outs = eval_jaxpr(jaxpr, [*[now.get(id(x), v) for x, v in zip(operands, values)], *state[n:]])
            now.update(zip([id(operands[i]) for i in written], outs[len(outs) - len(written):]))
            return outs[:len(outs) - len(written)], list(now.values())
        check = lambda values, state: call(cond, cond_consts, in_cond, values, state)

        def step(*vals):
            cs, bs, state = split(vals, nc, nb)
            outs, now = call(body, consts, in_body, bs, state[bool(in_cond):])
            if not in_cond:
                return [*now, *outs]
            (going,), after = check(cs, [*now, *outs])
            return [going, *after, *outs]
        fixed, state = [*contents(cond_consts), *contents(consts)], [*[c.value for c in cells], *carry]
        if in_cond:
            (going,), now = check(fixed[:nc], state)
            state = [going, *now, *carry]
        avals = list(map(typeof, state))
        going = lambda *vals: [vals[nc]] if in_cond else check(vals[:nc], vals[nc:])[0]
        fixed_avals = list(map(typeof, fixed))
        outs = self.bind(*fixed[:nc], *fixed, *state, cond_jaxpr=stage_closed(going, [*fixed_avals[:nc], *avals]),
                         body_jaxpr=stage_closed(step, [*fixed_avals, *avals]), cond_nconsts=nc, body_nconsts=nc + nb)
        outs = outs[bool(in_cond):]
        return update([*cells], range(n), [*outs[n:], *outs[:n]])

    def lower(self, e, ins, outs, *xs, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts):
        cond_consts, consts, carry = split(xs, cond_nconsts, body_nconsts)
        avals, n = ins[cond_nconsts + body_nconsts:], len(carry)
        if not carry:           # stablehlo.while has at least one
            avals = [ShapedArray((), np.dtype("int32"))]
            carry = [e.splat(0, avals[0])]
        cond = lambda c: e.jaxpr(cond_jaxpr, [*cond_consts, *c[:n]])[0]
        body = lambda c: [*e.jaxpr(body_jaxpr, [*consts, *c[:n]]), *c[n:]]
        return while_loop_text(e, carry, avals, cond, body, is_ordered(cond_jaxpr, body_jaxpr))[:n]


def while_loop_text(e, carry: Sequence[str], avals: Sequence[ShapedArray], cond: Callable, body: Callable,
                    ordered: bool = False) -> list[str]:
    """Emit stablehlo.while; cond and body map carry names to result names.  ordered: the body has ordered effects."""
    types, carry = [a.mlir for a in avals], list(carry)
    if ordered:
        types, carry = [*types, TOKEN], [*carry, e.token]
    e.count += 1
    names = [f"%iter{e.count}_{i}" for i in range(len(carry))]
    values = names[:-1] if ordered else names
    blocks = []
    for fn, returned in ((lambda c: [cond(c)], ["tensor<i1>"]), (body, types)):
        with e.block() as lines:
            if ordered:
                e.token = names[-1]
            outs = fn(values)
            e.finish([*outs, e.token] if ordered and fn is body else outs, returned)
        blocks.append("\n".join(lines))
    bindings = ", ".join(f"{n} = {x}" for n, x in zip(names, carry))
    results = e.ops(f"stablehlo.while({bindings}) : {', '.join(types)}\n cond {{\n{blocks[0]}\n}} do {{\n{blocks[1]}\n}}",
                    len(carry))
    if ordered:
        *results, e.token = results
    return results


def reorder_inputs(jaxpr: Jaxpr, sizes: Sequence[int], order: Sequence[int]) -> Jaxpr:
    groups = split(jaxpr.invars, *sizes)
    return Jaxpr([v for i in order for v in groups[i]], jaxpr.eqns, jaxpr.outvars, jaxpr.debug_name)


def widen_inputs(jaxpr: Jaxpr, extra: Sequence[ShapedArray]) -> Jaxpr:
    """The same jaxpr with further, unused inputs."""
    return Jaxpr([*jaxpr.invars, *map(Var, extra)], jaxpr.eqns, jaxpr.outvars, jaxpr.debug_name)


while_p = While()
