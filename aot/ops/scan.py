"""scan as a primitive: a body over the leading axis of arrays, its linear part, and its text."""
from __future__ import annotations

import numpy as np

from aot import dtypes
from aot.lower.emitter import is_ordered
from aot.ops.call import Holder, with_dots
from aot.ops.control import instantiate, nonzero_dots, reorder_inputs, split, while_loop_text
from aot.trace import (
    Eqn,
    Jaxpr,
    Linear,
    Literal,
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


class Scan(Holder):
    """Thread a carry through `jaxpr` over the leading axis of xs: (consts, carry, xs) -> (carry, ys)."""
    name = "scan"

    def infer(self, *avals, jaxpr, num_consts, num_carry, length, **_):
        carry, ys = jaxpr.out_avals[:num_carry], jaxpr.out_avals[num_carry:]
        return carry + [ShapedArray((length, *y.shape), y.dtype, y.weak_type) for y in ys]

    def opened(self, args, params):
        held, jaxpr = captured_by(params["jaxpr"]), opened(params["jaxpr"])
        return [*held, *args], {**params, "jaxpr": jaxpr, "num_consts": params["num_consts"] + len(held)}

    def shown(self, params):
        n = len(params["jaxpr"].invars)
        return dict(sorted({**params, "linear": (False,) * n, "_split_transpose": False}.items()))

    def jvp(self, primals, tangents, *, jaxpr, num_consts, num_carry, length, reverse, unroll):
        from aot.transforms.jvp import jvp_jaxpr
        const_nz, carry_nz, xs_nz = split(nonzero_dots(tangents), num_consts, num_carry)
        n_ys = len(jaxpr.outvars) - num_carry
        while True:
            both, out_nz = jvp_jaxpr(jaxpr, const_nz + carry_nz + xs_nz, carry_nz + [False] * n_ys)
            if out_nz[:num_carry] == carry_nz:
                break
            carry_nz = [a or b for a, b in zip(carry_nz, out_nz)]
        c_dots, i_dots, x_dots = split(tangents, num_consts, num_carry)
        dots = [[instantiate(t) for t, nz in zip(ts, nzs) if nz]
                for ts, nzs in ((c_dots, const_nz), (i_dots, carry_nz), (x_dots, xs_nz))]
        consts, init, xs = split(primals, num_consts, num_carry)
        sizes = [len(consts), len(init), len(xs), *map(len, dots)]
        body = reorder_inputs(both, sizes, [0, 3, 1, 4, 2, 5])
        n, m = num_carry, len(dots[1])
        outs_order = [*range(n), *range(n + n_ys, n + n_ys + m), *range(n, n + n_ys),
                      *range(n + n_ys + m, len(both.outvars))]
        body = Jaxpr(body.invars, body.eqns, [body.outvars[i] for i in outs_order], body.debug_name)
        outs = self.bind(*consts, *dots[0], *init, *dots[1], *xs, *dots[2], jaxpr=body, num_consts=len(consts) + len(dots[0]),
                         num_carry=n + m, length=length, reverse=reverse, unroll=unroll)
        carry, carry_d, ys, ys_d = split(outs, n, m, n_ys)
        return with_dots([*carry, *ys, *carry_d, *ys_d], out_nz, self._out_avals(jaxpr, num_carry, length))

    def _out_avals(self, jaxpr, num_carry, length):
        return self.infer(jaxpr=jaxpr, num_consts=0, num_carry=num_carry, length=length)

    def linearize(self, primals, tangents, *, jaxpr, num_consts, num_carry, length, reverse, unroll):
        """The forward scan stacks residuals; what depends on constants alone is computed once, outside."""
        nonzero = nonzero_dots(tangents)
        plan = jaxpr.memo(("scan_linearize", tuple(nonzero), num_consts, num_carry),
                          lambda: LinearScan(jaxpr, nonzero, num_consts, num_carry))
        if not any(plan.out_nonzero):
            outs = self.bind(*primals, jaxpr=jaxpr, num_consts=num_consts, num_carry=num_carry, length=length,
                             reverse=reverse, unroll=unroll)
            return outs, [Zero(tangent_aval(typeof(o))) for o in outs]
        consts, init, xs = split(primals, num_consts, num_carry)
        consts = [*consts, *eval_jaxpr(plan.known, consts)]
        outs = self.bind(*consts, *init, *xs, jaxpr=plan.fwd, num_consts=len(consts), num_carry=num_carry,
                         length=length, reverse=reverse, unroll=unroll)
        dots = [[instantiate(t) for t, nz in zip(ts, nzs) if nz]
                for ts, nzs in zip(split(tangents, num_consts, num_carry), plan.nonzero)]
        where = {"const": consts, "x": xs, "out": outs}
        fixed = [i if how == "literal" else where[how][i] for how, i in plan.fixed]
        rows = [where[how][i] for how, i in plan.rows]
        lin_outs = self.bind(*fixed, *dots[0], *dots[1], *rows, *dots[2], jaxpr=plan.lin,
                             num_consts=len(fixed) + len(dots[0]), num_carry=len(dots[1]), length=length, reverse=reverse,
                             unroll=unroll)
        n = len(jaxpr.outvars)
        return with_dots([*outs[:n], *lin_outs], plan.out_nonzero, self._out_avals(jaxpr, num_carry, length))

    def transpose(self, cts, *args, jaxpr, num_consts, num_carry, length, reverse, unroll):
        """Linear constants accumulate cotangents as a carry; linear xs get theirs stacked; the rest is fixed."""
        from aot.transforms.jvp import add_tangents
        from aot.transforms.linearize import transpose_flat
        c_args, i_args, x_args = split(args, num_consts, num_carry)
        c_lin, i_lin, x_lin = ([is_linear(x) for x in xs] for xs in (c_args, i_args, x_args))
        if any(not lin and tangent_aval(typeof(x)).dtype == dtypes.float0 for x, lin in zip(i_args, i_lin)):
            raise NotImplementedError("transpose of a scan that carries an integer; hint: scan over jnp.arange instead")
        fixed_c = [x for x in c_args if not is_linear(x)]
        fixed_x = [x for x in x_args if not is_linear(x)]
        ct_carry, ct_ys = split(cts, num_carry)
        ys_nz = [not is_zero(c) for c in ct_ys]
        c_avals, i_avals, x_avals = split(jaxpr.in_avals, num_consts, num_carry)
        acc_avals = [tangent_aval(a) for a, lin in zip(c_avals, c_lin) if lin]
        y_avals = [tangent_aval(a) for a, nz in zip(jaxpr.out_avals[num_carry:], ys_nz) if nz]
        carry_avals = [tangent_aval(a) for a in jaxpr.out_avals[:num_carry]]

        def back(*vals):
            fc, acc, ct_c, ct_y, fx = split(vals, len(fixed_c), len(acc_avals), num_carry, len(y_avals))
            it_c, it_x, it_y = iter(fc), iter(fx), iter(ct_y)
            ins = [Linear(a) if lin else next(it_c) for a, lin in zip(c_avals, c_lin)]
            ins += [Linear(a) for a in i_avals]
            ins += [Linear(a) if lin else next(it_x) for a, lin in zip(x_avals, x_lin)]
            outs = [*ct_c, *[next(it_y) if nz else Zero(tangent_aval(a))
                             for nz, a in zip(ys_nz, jaxpr.out_avals[num_carry:])]]
            got = transpose_flat(jaxpr, ins, outs)
            d_c, d_i, d_x = split(got, len(acc_avals), num_carry)
            return [*[instantiate(add_tangents(a, d)) for a, d in zip(acc, d_c)], *map(instantiate, d_i),
                    *map(instantiate, d_x)]
        fixed_c_avals = [a for a, lin in zip(c_avals, c_lin) if not lin]
        fixed_x_avals = [a for a, lin in zip(x_avals, x_lin) if not lin]
        key = ("scan_transpose", tuple(c_lin), tuple(x_lin), tuple(ys_nz), num_consts, num_carry)
        body = jaxpr.memo(key, lambda: stage_closed(back, [*fixed_c_avals, *acc_avals, *carry_avals, *y_avals,
                                                           *fixed_x_avals], jaxpr.debug_name))
        init = [instantiate(Zero(a)) for a in acc_avals] + [instantiate(c) for c in ct_carry]
        rows = [c for c in ct_ys if not is_zero(c)]
        outs = self.bind(*fixed_c, *init, *rows, *fixed_x, jaxpr=body, num_consts=len(fixed_c),
                         num_carry=len(init), length=length, reverse=not reverse, unroll=unroll)
        d_c, d_i, d_x = map(iter, split(outs, len(acc_avals), num_carry))
        # a carry that is not linear here is a tangent known to be zero, written out
        return ([next(d_c) if lin else None for lin in c_lin] + [d if lin else None for d, lin in zip(d_i, i_lin)]
                + [next(d_x) if lin else None for lin in x_lin])

    def vmap(self, axis, args, dims, *, jaxpr, num_consts, num_carry, length, reverse, unroll):
        from aot.transforms.vmap import batch_jaxpr, to_dim
        c_dims, i_dims, x_dims = split(dims, num_consts, num_carry)
        front = [None if d is None else 0 for d in c_dims]
        x_front = [None if d is None else 0 for d in x_dims]
        batched = [d is not None for d in i_dims]
        n_ys = len(jaxpr.outvars) - num_carry
        while True:
            carry_d = [0 if b else None for b in batched]
            body, out_dims = batch_jaxpr(jaxpr, axis, [*front, *carry_d, *x_front], batched + [False] * n_ys)
            new = [b or d is not None for b, d in zip(batched, out_dims)]
            if new == batched:
                break
            batched = new
        consts, init, xs = split(args, num_consts, num_carry)
        consts = [x if d is None else to_dim(axis, x, d, 0) for x, d in zip(consts, c_dims)]
        init = [to_dim(axis, x, d, 0) if b else x for x, d, b in zip(init, i_dims, batched)]
        xs = [x if d is None else to_dim(axis, x, d, 1) for x, d in zip(xs, x_dims)]
        outs = self.bind(*consts, *init, *xs, jaxpr=body, num_consts=num_consts, num_carry=num_carry, length=length,
                         reverse=reverse, unroll=unroll)
        return outs, [0 if b else None for b in batched] + [None if d is None else 1 for d in out_dims[num_carry:]]

    def discharge(self, args, *, jaxpr, num_consts, num_carry, **params):
        """What is written of constants is carried; of xs it is stacked."""
        body, written = discharged(jaxpr, args)
        consts, carry, xs = split(contents(args), num_consts, num_carry)
        held = [i for i in written if i < num_consts]
        kept = [i for i in range(num_consts) if i not in held]
        ins = [body.invars[i] for i in (*kept, *held, *range(num_consts, len(args)))]
        outs, changed, rows = split(body.outvars, len(jaxpr.outvars), len(held))
        body = Jaxpr(ins, body.eqns, [*changed, *outs, *rows], body.debug_name)
        outs = self.bind(*[consts[i] for i in kept], *[consts[i] for i in held], *carry, *xs, jaxpr=body, num_consts=len(kept),
                         num_carry=len(held) + num_carry, **params)
        changed, outs, rows = split(outs, len(held), len(jaxpr.outvars))
        return update(args, written, [*outs, *changed, *rows])

    def dce(self, eqn, needed):
        p = eqn.params
        jaxpr, num_consts, num_carry = p["jaxpr"], p["num_consts"], p["num_carry"]
        if jaxpr.effects:
            return eqn
        carry_needed = list(needed[:num_carry])
        while True:                                 # a carry is needed if an output or a needed carry depends on it
            keep = carry_needed + list(needed[num_carry:])
            small, used = dce(jaxpr, keep)
            new = [a or b for a, b in zip(carry_needed, used[num_consts:num_consts + num_carry])]
            if new == carry_needed:
                break
            carry_needed = new
        used[num_consts:num_consts + num_carry] = carry_needed
        if all(keep) and all(used):
            return eqn
        invars = [v for v, u in zip(small.invars, used) if u]
        small = Jaxpr(invars, small.eqns, small.outvars, small.debug_name)
        outvars = [v if n else Var(v.aval) for v, n, k in zip(eqn.outvars, needed, keep) if k]
        return Eqn(self, [x for x, u in zip(eqn.invars, used) if u], outvars,
                   {**p, "jaxpr": small, "num_consts": sum(used[:num_consts]), "num_carry": sum(carry_needed)},
                   eqn.source)

    def lower(self, e, ins, outs, *xs, jaxpr, num_consts, num_carry, length, reverse, unroll):
        consts, carry, seqs = split(xs, num_consts, num_carry)
        seq_avals = ins[num_consts + num_carry:]
        y_avals = outs[num_carry:]
        index = ShapedArray((), np.dtype("int32"))
        ys = [e.splat(0, a) for a in y_avals]
        avals = [index, *ins[num_consts:num_consts + num_carry], *y_avals]
        step = max(1, length if unroll is True else min(int(unroll), length))

        def body(vals):
            i, rest = vals[0], vals[1:]
            c, y = rest[:num_carry], list(rest[num_carry:])
            for _ in range(step):
                at = i if not reverse else e.op(f"stablehlo.subtract {e.splat(length - 1, index)}, {i} : {index.mlir}")
                rows = [_row(e, s, a, at) for s, a in zip(seqs, seq_avals)]
                results = e.jaxpr(jaxpr, [*consts, *c, *rows])
                c = results[:num_carry]
                y = [_set_row(e, stack, a, r, at) for stack, a, r in zip(y, y_avals, results[num_carry:])]
                i = e.op(f"stablehlo.add {i}, {e.splat(1, index)} : {index.mlir}")
            return [i, *c, *y]

        def loop(state, until):
            return while_loop_text(e, state, avals, lambda v: e.op(
                f"stablehlo.compare LT, {v[0]}, {e.splat(until, index)}, SIGNED : ({index.mlir}, {index.mlir}) -> "
                "tensor<i1>"), body, is_ordered(jaxpr))
        whole = length - length % step
        state = [e.splat(0, index), *carry, *ys]
        if whole == step and step:
            state = body(state)
        elif whole:
            state = loop(state, whole)
        if length % step:
            tail, step = length % step, 1
            state = loop(state, length) if tail > 1 else body(state)
        return state[1:]


def _row(e, seq: str, a: ShapedArray, at: str) -> str:
    """seq[at] for a computed scalar."""
    p = a.physical
    zero = e.splat(0, ShapedArray((), np.dtype("int32")))
    one = ShapedArray((1, *p.shape[1:]), p.dtype)
    starts = ", ".join([at] + [zero] * (len(p.shape) - 1))
    types = ", ".join(["tensor<i32>"] * len(p.shape))
    sizes = ", ".join(map(str, one.shape))
    cut = e.op(f"stablehlo.dynamic_slice {seq}, {starts}, sizes = [{sizes}] : ({p.mlir}, {types}) -> {one.mlir}")
    return e.op(f"stablehlo.reshape {cut} : ({one.mlir}) -> {ShapedArray(p.shape[1:], p.dtype).mlir}")


def _set_row(e, seq: str, a: ShapedArray, row: str, at: str) -> str:
    p = a.physical
    zero = e.splat(0, ShapedArray((), np.dtype("int32")))
    one = ShapedArray((1, *p.shape[1:]), p.dtype)
    wide = e.op(f"stablehlo.reshape {row} : ({ShapedArray(p.shape[1:], p.dtype).mlir}) -> {one.mlir}")
    starts = ", ".join([at] + [zero] * (len(p.shape) - 1))
    types = ", ".join(["tensor<i32>"] * len(p.shape))
    return e.op(f"stablehlo.dynamic_update_slice {seq}, {wide}, {starts} : ({p.mlir}, {one.mlir}, {types}) -> {p.mlir}")


class LinearScan:
    """How to run a scan forwards and its linear part.

    known: consts -> loop-invariant values.  fwd: the primal body, with the residuals that change from step to step as
    further outputs.  lin: the linear body.  fixed and rows say where its fixed and per-step residuals are found."""

    def __init__(self, jaxpr: Jaxpr, nonzero: list[bool], num_consts: int, num_carry: int):
        from aot.transforms.linearize import linearize_jaxpr
        const_nz, carry_nz, xs_nz = split(nonzero, num_consts, num_carry)
        n_out = len(jaxpr.outvars)
        while True:
            lin = linearize_jaxpr(jaxpr, const_nz + carry_nz + xs_nz, carry_nz + [False] * (n_out - num_carry))
            if lin.out_nonzero[:num_carry] == carry_nz:
                break
            carry_nz = [a or b for a, b in zip(carry_nz, lin.out_nonzero)]
        self.nonzero, self.out_nonzero = (const_nz, carry_nz, xs_nz), lin.out_nonzero
        self.known, fwd = hoist_invariant(lin.fwd, num_consts)
        n_fixed = num_consts + len(self.known.outvars)
        source = {v: i for i, v in enumerate(fwd.invars)}
        row_of = {v: i for i, v in enumerate(fwd.outvars[:n_out]) if i >= num_carry}
        outvars = fwd.outvars[:n_out]
        n_res = len(lin.residuals)
        fixed_vars, row_vars, self.fixed, self.rows = [], [], [], []
        for var, (side, i) in zip(lin.lin.invars[:n_res], lin.residuals):
            v = lin.fwd.invars[i] if side == "in" else lin.fwd.outvars[i]
            at = source.get(v) if type(v) is Var else None
            if type(v) is Literal or at is not None and at < n_fixed:
                fixed_vars.append(var)
                self.fixed.append(("literal", v.val) if type(v) is Literal else ("const", at))
                continue
            row_vars.append(var)
            if at is not None and at >= n_fixed + num_carry:
                self.rows.append(("x", at - n_fixed - num_carry))
                continue
            if v not in row_of:
                row_of[v] = len(outvars)
                outvars.append(v)
            self.rows.append(("out", row_of[v]))
        c_vars, i_vars, x_vars = split(lin.lin.invars[n_res:], sum(const_nz), sum(carry_nz))
        self.fwd = Jaxpr(fwd.invars, fwd.eqns, outvars, jaxpr.debug_name)
        self.lin = Jaxpr([*fixed_vars, *c_vars, *i_vars, *row_vars, *x_vars], lin.lin.eqns, lin.lin.outvars,
                         jaxpr.debug_name)


def hoist_invariant(jaxpr: Jaxpr, num_consts: int) -> tuple[Jaxpr, Jaxpr]:
    """Split off the equations that depend on the first num_consts inputs alone.

    -> (known: consts -> invariant values, rest: consts ++ invariant values ++ other inputs -> outputs)."""
    consts = jaxpr.invars[:num_consts]
    invariant = set(consts)
    early, late = [], []
    for e in jaxpr.eqns:
        fixed = e.invars and not e.effects and all(type(v) is Literal or v in invariant for v in e.invars) and any(
            type(v) is Var for v in e.invars)
        (early if fixed else late).append(e)
        if fixed:
            invariant.update(e.outvars)
    used = {v for e in late for v in e.invars if type(v) is Var} | {v for v in jaxpr.outvars if type(v) is Var}
    values = [v for e in early for v in e.outvars if v in used]
    known = Jaxpr(consts, early, values, jaxpr.debug_name)
    rest = Jaxpr([*consts, *values, *jaxpr.invars[num_consts:]], late, jaxpr.outvars, jaxpr.debug_name)
    return known, rest


scan_p = Scan()
