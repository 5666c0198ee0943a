"""cond and switch, while_loop and fori_loop, scan and map: their primitives."""
from __future__ import annotations

from typing import Callable, Sequence

import numpy as np

from aot import dtypes
from aot.lower.emitter import TOKEN, is_ordered
from aot.ops.call import Holder, with_dots
from aot.ops.families import kind
from aot.trace import (
    Eqn,
    Jaxpr,
    Linear,
    ShapedArray,
    Var,
    Zero,
    bind,
    dce,
    eval_jaxpr,
    is_linear,
    is_zero,
    stage,
    tangent_aval,
    typeof,
)
from aot.trace.jaxpr import Literal


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


def has_tangent(aval: ShapedArray) -> bool:
    return tangent_aval(aval).dtype != dtypes.float0


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

    def jvp(self, primals, tangents, *, branches):
        from aot.transforms.jvp import jvp_jaxpr
        index, *xs = primals
        nonzero = nonzero_dots(tangents[1:])
        out_nonzero = [any(col) for col in zip(*(jvp_jaxpr(b, nonzero)[1] for b in branches))]
        both = tuple(jvp_jaxpr(b, nonzero, out_nonzero)[0] for b in branches)
        dots = [t for t, nz in zip(tangents[1:], nonzero) if nz]
        outs = bind(self, index, *xs, *dots, branches=both)
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
        outs = bind(self, index, *xs, branches=fwd)
        dots = [t for t, nz in zip(tangents[1:], nonzero) if nz]
        lin_outs = bind(self, index, *outs[n_out:], *dots, branches=lin) if any(out_nonzero) else []
        return with_dots([*outs[:n_out], *lin_outs], out_nonzero, branches[0].out_avals)

    def transpose(self, cts, index, *args, branches):
        from aot.transforms.linearize import transpose_jaxpr
        linear = [is_linear(x) for x in args]
        nonzero_cts = [not is_zero(c) for c in cts]
        backs = tuple(transpose_jaxpr(b, linear, nonzero_cts, True)[0] for b in branches)
        outs = iter(bind(self, index, *[x for x in args if not is_linear(x)], *[c for c in cts if not is_zero(c)],
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
        return bind(self, index, *xs, branches=batched), [0 if f else None for f in force]

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
    outer, e.lines = e.lines, []
    e.scopes.append({})
    outs, types = e.jaxpr(jaxpr, xs), [a.mlir for a in jaxpr.out_avals]
    if ordered:
        outs, types = [*outs, e.token], [*types, TOKEN]
    e.lines.append(f"stablehlo.return {', '.join(outs)} : {', '.join(types)}" if outs else "stablehlo.return")
    e.scopes.pop()
    body, e.lines = e.lines, outer
    return "{\n" + "\n".join(body) + "\n}"


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
    return stage(fwd, f.fwd.in_avals, f.fwd.debug_name)[0]


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
        outs = bind(self, *cond_consts, *consts, *const_dots, *carry, *dots, cond_jaxpr=cond, body_jaxpr=body,
                    cond_nconsts=cond_nconsts, body_nconsts=n + m)
        return with_dots(outs, carry_nz, body_jaxpr.out_avals)

    def linearize(self, primals, tangents, **params):
        """Forward-differentiable only: primal outputs by themselves, tangents by the joint loop, staged whole."""
        outs = bind(self, *primals, **params)
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
        outs = bind(self, *cond_consts, *consts, *init, cond_jaxpr=cond, body_jaxpr=body, cond_nconsts=cond_nconsts,
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
        new_cond = stage(any_lane, [*cond.in_avals[:nc], *carry_avals])[0]
        new_body = stage(masked, [*cond.in_avals[:nc], *body.in_avals[:nb], *carry_avals])[0]
        return bind(self, *cond_consts, *cond_consts, *consts, *init, cond_jaxpr=new_cond, body_jaxpr=new_body,
                    cond_nconsts=nc, body_nconsts=nc + nb)

    def lower(self, e, ins, outs, *xs, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts):
        cond_consts, consts, carry = split(xs, cond_nconsts, body_nconsts)
        avals = ins[cond_nconsts + body_nconsts:]
        return while_loop_text(e, carry, avals, lambda c: e.jaxpr(cond_jaxpr, [*cond_consts, *c])[0],
                               lambda c: e.jaxpr(body_jaxpr, [*consts, *c]), is_ordered(cond_jaxpr, body_jaxpr))


def while_loop_text(e, carry: Sequence[str], avals: Sequence[ShapedArray], cond: Callable, body: Callable,
                    ordered: bool = False) -> list[str]:
    """Emit stablehlo.while; cond and body map carry names to result names.  ordered: the body has ordered effects."""
    types, carry = [a.mlir for a in avals], list(carry)
    if ordered:
        types, carry = [*types, TOKEN], [*carry, e.token]
    e.count += 1
    names = [f"%iter{e.count}_{i}" for i in range(len(carry))]
    values = names[:-1] if ordered else names
    outer, blocks = e.lines, []
    for fn in (lambda c: [cond(c)], body):
        e.lines = []
        e.scopes.append({})
        if ordered:
            e.token = names[-1]
        outs, ret = fn(values), "tensor<i1>"
        if blocks:
            outs, ret = [*outs, e.token] if ordered else outs, ", ".join(types)
        e.lines.append(f"stablehlo.return {', '.join(outs)} : {ret}")
        e.scopes.pop()
        blocks.append("\n".join(e.lines))
    e.lines = outer
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


# ---- scan --------------------------------------------------------------------------------------------------------

class Scan(Holder):
    """Thread a carry through `jaxpr` over the leading axis of xs: (consts, carry, xs) -> (carry, ys)."""
    name = "scan"

    def infer(self, *avals, jaxpr, num_consts, num_carry, length, **_):
        carry, ys = jaxpr.out_avals[:num_carry], jaxpr.out_avals[num_carry:]
        return carry + [ShapedArray((length, *y.shape), y.dtype, y.weak_type) for y in ys]

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
        outs = bind(self, *consts, *dots[0], *init, *dots[1], *xs, *dots[2], jaxpr=body, num_consts=len(consts) + len(dots[0]),
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
            outs = bind(self, *primals, jaxpr=jaxpr, num_consts=num_consts, num_carry=num_carry, length=length,
                        reverse=reverse, unroll=unroll)
            return outs, [Zero(tangent_aval(typeof(o))) for o in outs]
        consts, init, xs = split(primals, num_consts, num_carry)
        consts = [*consts, *eval_jaxpr(plan.known, consts)]
        outs = bind(self, *consts, *init, *xs, jaxpr=plan.fwd, num_consts=len(consts), num_carry=num_carry,
                    length=length, reverse=reverse, unroll=unroll)
        dots = [[instantiate(t) for t, nz in zip(ts, nzs) if nz]
                for ts, nzs in zip(split(tangents, num_consts, num_carry), plan.nonzero)]
        where = {"const": consts, "x": xs, "out": outs}
        fixed = [i if how == "literal" else where[how][i] for how, i in plan.fixed]
        rows = [where[how][i] for how, i in plan.rows]
        lin_outs = bind(self, *fixed, *dots[0], *dots[1], *rows, *dots[2], jaxpr=plan.lin,
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
        if any(not lin and not has_tangent(typeof(x)) for x, lin in zip(i_args, i_lin)):
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
        body = jaxpr.memo(key, lambda: stage(back, [*fixed_c_avals, *acc_avals, *carry_avals, *y_avals, *fixed_x_avals],
                                             jaxpr.debug_name)[0])
        init = [instantiate(Zero(a)) for a in acc_avals] + [instantiate(c) for c in ct_carry]
        rows = [c for c in ct_ys if not is_zero(c)]
        outs = bind(self, *fixed_c, *init, *rows, *fixed_x, jaxpr=body, num_consts=len(fixed_c),
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
        outs = bind(self, *consts, *init, *xs, jaxpr=body, num_consts=num_consts, num_carry=num_carry, length=length,
                    reverse=reverse, unroll=unroll)
        return outs, [0 if b else None for b in batched] + [None if d is None else 1 for d in out_dims[num_carry:]]

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
        step = 1 if unroll is False else length if unroll is True else max(1, min(int(unroll), length or 1))

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
