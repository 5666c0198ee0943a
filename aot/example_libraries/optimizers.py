"""Optimizers as triples of functions: (init(params) -> state, update(step, grads, state) -> state, params(state)).

Steps count from 0.  A step size is a number, or a schedule: a function of the step.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import aot.numpy as jnp
from aot.tree_util import register_pytree_node, tree_flatten, tree_leaves, tree_map, tree_unflatten

Schedule = Callable[[Any], Any]


class Optimizer(NamedTuple):
    """The three functions of an optimizer."""
    init_fn: Callable
    update_fn: Callable
    params_fn: Callable


class OptimizerState(NamedTuple):
    """The state of each array of the parameters: its leaves, and what the leaves are of."""
    packed_state: Any
    tree_def: Any
    subtree_defs: Any


register_pytree_node(OptimizerState, lambda s: ((s.packed_state,), (s.tree_def, s.subtree_defs)),
                     lambda static, children: OptimizerState(children[0], *static))


def optimizer(opt_maker: Callable) -> Callable[..., Optimizer]:
    """Decorator: an optimizer of single arrays becomes one of trees."""
    @functools.wraps(opt_maker)
    def tree_opt_maker(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def packed(states: list, tree: Any) -> OptimizerState:
            leaves, trees = zip(*map(tree_flatten, states)) if states else ((), ())
            return OptimizerState(list(leaves), tree, tuple(trees))

        def unpacked(state: OptimizerState) -> list:
            return [tree_unflatten(tree, leaves) for tree, leaves in zip(state.subtree_defs, state.packed_state)]

        def tree_init(params: Any) -> OptimizerState:
            leaves, tree = tree_flatten(params)
            return packed([init(x) for x in leaves], tree)

        def tree_update(i: Any, grads: Any, state: OptimizerState) -> OptimizerState:
            leaves, tree = tree_flatten(grads)
            if tree != state.tree_def:
                raise TypeError(f"the gradients have the structure {tree}, but the optimizer was made for {state.tree_def}")
            fresh = packed([update(i, g, s) for g, s in zip(leaves, unpacked(state))], tree)
            if fresh.subtree_defs != state.subtree_defs:
                raise TypeError(f"the update function returned a state of structure {fresh.subtree_defs} for one of structure "
                                f"{state.subtree_defs}")
            return fresh

        def tree_params(state: OptimizerState) -> Any:
            return tree_unflatten(state.tree_def, map(get_params, unpacked(state)))
        return Optimizer(tree_init, tree_update, tree_params)
    return tree_opt_maker


# ---- optimizers ------------------------------------------------------------------------------------------------------

@optimizer
def sgd(step_size: Any) -> tuple:
    """x - step_size g."""
    step_size = make_schedule(step_size)
    return lambda x: x, lambda i, g, x: x - step_size(i) * g, lambda x: x


def _with_velocity(step: Callable) -> tuple:
    """step(i, g, x, v) -> (x, v), with v zero at first."""
    return lambda x: (x, jnp.zeros_like(x)), lambda i, g, state: step(i, g, *state), lambda state: state[0]


@optimizer
def momentum(step_size: Any, mass: Any) -> tuple:
    """v = mass v + g;  x - step_size v."""
    step_size = make_schedule(step_size)

    def step(i, g, x, v):
        v = mass * v + g
        return x - step_size(i) * v, v
    return _with_velocity(step)


@optimizer
def nesterov(step_size: Any, mass: Any) -> tuple:
    """v = mass v + g;  x - step_size (mass v + g)."""
    step_size = make_schedule(step_size)

    def step(i, g, x, v):
        v = mass * v + g
        return x - step_size(i) * (mass * v + g), v
    return _with_velocity(step)


def _two(step: Callable) -> tuple:
    """step(i, g, x, a, b) -> (x, a, b), with a and b zero at first."""
    return (lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), lambda i, g, state: step(i, g, *state),
            lambda state: state[0])


def _inverse_root(x: Any) -> Any:
    return jnp.where(x > 0, 1.0 / jnp.sqrt(jnp.where(x > 0, x, 1)), 0.0)


@optimizer
def adagrad(step_size: Any, momentum: float = 0.9) -> tuple:
    """Duchi, Hazan and Singer, 2011, with momentum."""
    step_size = make_schedule(step_size)

    def step(i, g, x, squares, m):
        squares = squares + g * g
        m = (1.0 - momentum) * (g * _inverse_root(squares)) + momentum * m
        return x - step_size(i) * m, squares, m
    return _two(step)


@optimizer
def rmsprop(step_size: Any, gamma: float = 0.9, eps: float = 1e-8) -> tuple:
    """Steps divided by the root of a running mean of squares."""
    step_size = make_schedule(step_size)

    def step(i, g, x, mean):
        mean = mean * gamma + g * g * (1.0 - gamma)
        return x - step_size(i) * g / jnp.sqrt(mean + eps), mean
    return _with_velocity(step)


@optimizer
def rmsprop_momentum(step_size: Any, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9) -> tuple:
    """The same with momentum."""
    step_size = make_schedule(step_size)

    def step(i, g, x, mean, m):
        mean = mean * gamma + g * g * (1.0 - gamma)
        m = momentum * m + step_size(i) * g / jnp.sqrt(mean + eps)
        return x - m, mean, m
    return _two(step)


@optimizer
def adam(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> tuple:
    """Kingma and Ba, 2015, algorithm 1."""
    step_size = make_schedule(step_size)

    def step(i, g, x, m, v):
        m, v = (1 - b1) * g + b1 * m, (1 - b2) * jnp.square(g) + b2 * v
        unbiased_m, unbiased_v = m / (1 - jnp.asarray(b1, m.dtype) ** (i + 1)), v / (1 - jnp.asarray(b2, m.dtype) ** (i + 1))
        return x - step_size(i) * unbiased_m / (jnp.sqrt(unbiased_v) + eps), m, v
    return _two(step)


@optimizer
def adamax(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> tuple:
    """Kingma and Ba, 2015, algorithm 2."""
    step_size = make_schedule(step_size)

    def step(i, g, x, m, v):
        m, v = (1 - b1) * g + b1 * m, jnp.maximum(b2 * v, jnp.abs(g))
        return x - (step_size(i) / (1 - jnp.asarray(b1, m.dtype) ** (i + 1))) * m / (v + eps), m, v
    return _two(step)


@optimizer
def sm3(step_size: Any, momentum: float = 0.9) -> tuple:
    """Anil, Gupta, Koren and Singer, 2019: of the sums of squares one vector for each axis is kept."""
    step_size = make_schedule(step_size)

    def init(x):
        full = jnp.atleast_1d(x)
        return full, jnp.zeros_like(full), [jnp.zeros(n, full.dtype) for n in full.shape], x.shape

    def update(i, g, state):
        x, m, sums, shape = state
        g = jnp.reshape(g, x.shape)
        along = [jnp.expand_dims(s, [a for a in range(x.ndim) if a != axis]) for axis, s in enumerate(sums)]
        squares = functools.reduce(jnp.minimum, along) + jnp.square(g)
        m = (1.0 - momentum) * (g * _inverse_root(squares)) + momentum * m
        sums = [squares.max([a for a in range(x.ndim) if a != axis]) for axis in range(x.ndim)]
        return x - step_size(i) * m, m, sums, shape
    return init, update, lambda state: jnp.reshape(state[0], state[3])


# ---- schedules -------------------------------------------------------------------------------------------------------

def constant(step_size: Any) -> Schedule:
    """The same at every step."""
    return lambda i: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """step_size decay_rate^(i / decay_steps)."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False) -> Schedule:
    """step_size / (1 + decay_rate i / decay_steps); with staircase, i / decay_steps is rounded down."""
    return lambda i: step_size / (1 + decay_rate * (jnp.floor(i / decay_steps) if staircase else i / decay_steps))


def polynomial_decay(step_size: Any, decay_steps: Any, final_step_size: Any, power: float = 1.0) -> Schedule:
    """From step_size to final_step_size within decay_steps."""
    return lambda i: (1 - jnp.minimum(i, decay_steps) / decay_steps) ** power * (step_size - final_step_size) + final_step_size


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """values[k] between the boundaries k - 1 and k.  ValueError without one more value than boundaries."""
    boundaries, values = jnp.array(boundaries), jnp.array(values)
    if not boundaries.ndim == values.ndim == 1 or len(values) != len(boundaries) + 1:
        raise ValueError(f"piecewise_constant takes a list of boundaries and one value more, got shapes {boundaries.shape} and "
                         f"{values.shape}")
    return lambda i: values[jnp.sum(i > boundaries)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A schedule from a number or a schedule.  TypeError for anything else."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(f"a step size is a number or a function of the step, got {scalar_or_schedule!r}")


# ---- helpers ---------------------------------------------------------------------------------------------------------

def l2_norm(tree: Any) -> Any:
    """The Euclidean norm of all arrays of a tree together."""
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in tree_leaves(tree)))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """A tree, scaled down to max_norm where its norm is larger."""
    norm = l2_norm(grad_tree)
    return tree_map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


class JoinPoint:
    """Where the state of one array hangs in a tree of parameters."""

    def __init__(self, subtree: Any): self.subtree = subtree
    def __iter__(self) -> Any: yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """A tree like the parameters with the state of each array in a JoinPoint, to be written to files."""
    states = [tree_unflatten(tree, leaves) for tree, leaves in zip(opt_state.subtree_defs, opt_state.packed_state)]
    return tree_unflatten(opt_state.tree_def, map(JoinPoint, states))


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The inverse of `unpack_optimizer_state`.  TypeError where a leaf is no JoinPoint."""
    points, tree = tree_flatten(marked_pytree)
    if any(not isinstance(p, JoinPoint) for p in points):
        raise TypeError("pack_optimizer_state takes a tree of JoinPoints, as unpack_optimizer_state returns")
    leaves, trees = zip(*(tree_flatten(p.subtree) for p in points)) if points else ((), ())
    return OptimizerState(list(leaves), tree, tuple(trees))
