"""Rotations as unit quaternions (x, y, z, w), one or a batch, and interpolation between them."""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import aot.numpy as jnp

Array = Any


def _axes(seq: str, count: Any) -> tuple[list[int], bool]:
    """(axis numbers, whether about moving axes) of a name like "xyz" (fixed axes) or "ZYX" (moving axes)."""
    if len(seq) not in count:
        raise ValueError(f"Expected {'3 axes' if count == (3,) else 'axis specification of 1 to 3 characters'}, got {seq}.")
    moving = re.fullmatch("[XYZ]+", seq) is not None
    if not moving and not re.fullmatch("[xyz]+", seq):
        raise ValueError(f"Expected axes from `seq` to be from ['x', 'y', 'z'] or ['X', 'Y', 'Z'], got {seq}")
    if any(a == b for a, b in zip(seq, seq[1:])):
        raise ValueError(f"Expected consecutive axes to be different, got {seq}")
    return ["xyz".index(c) for c in seq.lower()], moving


def _normalized(quat: Array) -> Array:
    return quat / jnp.linalg.norm(quat, axis=-1, keepdims=True)


def _product(p: Array, q: Array) -> Array:
    """The rotation q, then p."""
    p, q = jnp.broadcast_arrays(p, q)
    vector = p[..., 3:] * q[..., :3] + q[..., 3:] * p[..., :3] + jnp.cross(p[..., :3], q[..., :3])
    scalar = p[..., 3] * q[..., 3] - jnp.sum(p[..., :3] * q[..., :3], -1)
    return jnp.concatenate([vector, scalar[..., None]], -1)


def _about_axis(axis: int, angle: Array) -> Array:
    parts = [jnp.zeros_like(angle)] * 3 + [jnp.cos(angle / 2.)]
    parts[axis] = jnp.sin(angle / 2.)
    return jnp.stack(parts, -1)


def _norm(v: Array) -> Array:
    return jnp.sqrt(jnp.sum(v * v, axis=-1, keepdims=True))


class Rotation(NamedTuple):
    """One rotation, quat of shape (4,), or a batch, (n, 4)."""
    quat: Array

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """A batch of all rotations of several batches."""
        return cls(jnp.concatenate([rotation.quat for rotation in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: Array, degrees: bool = False) -> Rotation:
        """Rotations about up to three axes in turn; angles: (len(seq),), or (n, len(seq))."""
        axes, moving = _axes(seq, (1, 2, 3))
        angles = jnp.atleast_1d(angles)
        angles = jnp.where(degrees, jnp.deg2rad(angles), angles)
        quat = _about_axis(axes[0], angles[..., 0])
        for i, axis in enumerate(axes[1:], 1):
            turn = _about_axis(axis, angles[..., i])
            quat = _product(quat, turn) if moving else _product(turn, quat)
        return cls(quat)

    @classmethod
    def from_matrix(cls, matrix: Array) -> Rotation:
        """From orthogonal matrices, (.., 3, 3), by the largest of the four squared components."""
        m = jnp.asarray(matrix)
        trace = m[..., 0, 0] + m[..., 1, 1] + m[..., 2, 2]
        forms = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            parts = [None, None, None, m[..., k, j] - m[..., j, k]]
            parts[i] = 1 - trace + 2 * m[..., i, i]
            parts[j], parts[k] = m[..., j, i] + m[..., i, j], m[..., k, i] + m[..., i, k]
            forms.append(jnp.stack(parts, -1))
        forms.append(jnp.stack([m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1],
                                1 + trace], -1))
        largest = jnp.argmax(jnp.stack([m[..., 0, 0], m[..., 1, 1], m[..., 2, 2], trace], -1), -1)
        chosen = jnp.take_along_axis(jnp.stack(forms, -2), largest[..., None, None], -2)
        return cls(_normalized(chosen[..., 0, :]))

    @classmethod
    def from_mrp(cls, mrp: Array) -> Rotation:
        """From modified Rodrigues parameters: axis times tan(angle / 4)."""
        mrp = jnp.asarray(mrp)
        s = jnp.sum(mrp * mrp, -1, keepdims=True) + 1
        return cls(jnp.concatenate([2 * mrp, 2 - s], -1) / s)

    @classmethod
    def from_quat(cls, quat: Array) -> Rotation:
        """From quaternions (x, y, z, w) of any length."""
        return cls(_normalized(jnp.asarray(quat)))

    @classmethod
    def from_rotvec(cls, rotvec: Array, degrees: bool = False) -> Rotation:
        """From axes times angles."""
        rotvec = jnp.asarray(rotvec)
        rotvec = jnp.where(degrees, jnp.deg2rad(rotvec), rotvec)
        angle = _norm(rotvec)
        small = angle <= 1e-3
        squared, safe = angle * angle, jnp.where(small, 1, angle)
        scale = jnp.where(small, 0.5 - squared / 48 + squared * squared / 3840, jnp.sin(safe / 2) / safe)
        return cls(jnp.concatenate([scale * rotvec, jnp.cos(angle / 2)], -1))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """No rotation."""
        if num is not None:
            raise NotImplementedError("Rotation.identity makes one rotation; num must be None")
        return cls(jnp.array([0., 0., 0., 1.], dtype=dtype))

    @classmethod
    def random(cls, random_key: Array, num: int | None = None) -> Rotation:
        """A uniformly distributed rotation, or `num` of them: normalized normal quaternions."""
        from aot import random
        return cls.from_quat(random.normal(random_key, (4,) if num is None else (num, 4)))

    def __getitem__(self, indexer: Any) -> Rotation:  # type: ignore[override]
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Single rotation has no len().")
        return self.quat.shape[0]

    def __mul__(self, other: Any) -> Rotation:  # type: ignore[override]
        """`other` first, then this one."""
        return Rotation.from_quat(_product(self.quat, other.quat))

    def apply(self, vectors: Array, inverse: bool = False) -> Array:
        """Rotated vectors, (3,) or (n, 3)."""
        matrix = self.as_matrix()
        matrix = jnp.where(inverse, jnp.swapaxes(matrix, -1, -2), matrix)
        return jnp.matmul(matrix, jnp.asarray(vectors)[..., None])[..., 0]

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Angles about three axes, (.., 3), in (-pi, pi]: E. Bernardes and S. Viollet, "Quaternion to Euler angles
        conversion", PLoS ONE 17 (2022).  Where the first and third turn about the same line, the third is 0."""
        axes, moving = _axes(seq, (3,))
        i, j, k = axes if not moving else axes[::-1]
        symmetric = i == k
        k = 3 - i - j if symmetric else k
        sign = (i - j) * (j - k) * (k - i) // 2
        q = self.quat
        if symmetric:
            a, b, c, d = q[..., 3], q[..., i], q[..., j], q[..., k] * sign
        else:
            a, b = q[..., 3] - q[..., j], q[..., i] + q[..., k] * sign
            c, d = q[..., j] + q[..., 3], q[..., k] * sign - q[..., i]
        middle = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
        half_sum, half_difference = jnp.arctan2(b, a), jnp.arctan2(d, c)
        first, third = half_sum - half_difference, half_sum + half_difference
        at_pi, at_zero = jnp.abs(middle - np.pi) <= 1e-7, jnp.abs(middle) <= 1e-7
        locked = jnp.where(at_zero, 2 * half_sum, 2 * half_difference * (1 if moving else -1))
        lock = at_pi | at_zero
        outer = [jnp.where(lock, 0, third), jnp.where(lock, locked, first)] if moving else [
            jnp.where(lock, locked, first), jnp.where(lock, 0, third)]
        if not symmetric:
            which = 0 if moving else 1
            outer[which] = outer[which] * sign
            middle = middle - np.pi / 2
        angles = jnp.stack([outer[0], middle, outer[1]], -1)
        angles = (angles + np.pi) % (2 * np.pi) - np.pi
        return jnp.where(degrees, jnp.rad2deg(angles), angles)

    def as_matrix(self) -> Array:
        """Orthogonal matrices, (.., 3, 3)."""
        x, y, z, w = (self.quat[..., i] for i in range(4))
        rows = [[x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
                [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
                [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w]]
        return jnp.stack([jnp.stack(row, -1) for row in rows], -2)

    def as_mrp(self) -> Array:
        """Modified Rodrigues parameters, (.., 3)."""
        w = self.quat[..., 3:]
        sign = jnp.where(w < 0, -1., 1.).astype(w.dtype)
        return sign * self.quat[..., :3] / (1. + sign * w)

    def as_rotvec(self, degrees: bool = False) -> Array:
        """Axes times angles in [0, pi], (.., 3)."""
        quat = jnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        angle = 2. * jnp.arctan2(_norm(quat[..., :3]), quat[..., 3:])
        small = angle <= 1e-3
        squared, safe = angle * angle, jnp.where(small, 1, angle)
        scale = jnp.where(small, 2 + squared / 12 + 7 * squared * squared / 2880, safe / jnp.sin(safe / 2))
        return jnp.where(degrees, jnp.rad2deg(scale), scale) * quat[..., :3]

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """Quaternions, (.., 4); canonical: of the two that mean the same, the one whose last nonzero of (w, x, y, z), in
        that order of precedence, is positive."""
        quat = self.quat
        if canonical:
            signs = jnp.sign(jnp.stack([quat[..., i] for i in (3, 0, 1, 2)], -1))
            first = jnp.argmax(signs != 0, -1)
            quat = jnp.where(jnp.take_along_axis(signs, first[..., None], -1) < 0, -quat, quat)
        return jnp.roll(quat, shift=1, axis=-1) if scalar_first else quat

    def inv(self) -> Rotation:
        """The inverse rotation."""
        return Rotation(self.quat * np.array([-1, -1, -1, 1], self.quat.dtype))

    def magnitude(self) -> Array:
        """Angles in [0, pi]."""
        return 2. * jnp.arctan2(_norm(self.quat[..., :3])[..., 0], jnp.abs(self.quat[..., 3]))

    def mean(self, weights: Array | None = None) -> Rotation:
        """The rotation with the least weighted sum of squared chordal distances."""
        n, dtype = self.quat.shape[0], self.quat.dtype
        w = jnp.ones(n, dtype=dtype) if weights is None else jnp.asarray(weights, dtype=dtype)
        if w.ndim != 1:
            raise ValueError(f"Expected `weights` to be 1 dimensional, got shape {w.shape}.")
        if w.shape[0] != len(self):
            raise ValueError("Expected `weights` to have number of values equal to number of rotations, got "
                             f"{w.shape[0]} values and {len(self)} rotations.")
        _, v = jnp.linalg.eigh(jnp.dot(w[None, :] * self.quat.T, self.quat))
        return Rotation(v[:, -1])

    @property
    def single(self) -> bool:
        """Whether this is one rotation, not a batch."""
        return self.quat.ndim == 1


class Slerp(NamedTuple):
    """Rotations at given times, with constant angular velocity between them; made by Slerp.init."""
    times: Array
    timedelta: Array
    rotations: Rotation
    rotvecs: Array

    @classmethod
    def init(cls, times: Array, rotations: Rotation) -> Slerp:
        """times: increasing, (n,); rotations: a batch of n >= 2."""
        if not isinstance(rotations, Rotation):
            raise TypeError("`rotations` must be a `Rotation` instance.")
        if rotations.single or len(rotations) == 1:
            raise ValueError("`rotations` must be a sequence of at least 2 rotations.")
        times = jnp.asarray(times, dtype=rotations.quat.dtype)
        if times.ndim != 1:
            raise ValueError(f"Expected times to be specified in a 1 dimensional array, got {times.ndim} dimensions.")
        if times.shape[0] != len(rotations):
            raise ValueError("Expected number of rotations to be equal to number of timestamps given, got "
                             f"{len(rotations)} rotations and {times.shape[0]} timestamps.")
        first, second = Rotation(rotations.quat[:-1]), Rotation(rotations.quat[1:])
        return cls(times, jnp.diff(times), first, (first.inv() * second).as_rotvec())

    def __call__(self, times: Array) -> Rotation:
        """The rotation at each time, a scalar or (m,)."""
        at = jnp.asarray(times, dtype=self.times.dtype)
        if at.ndim > 1:
            raise ValueError("`times` must be at most 1-dimensional.")
        flat = jnp.atleast_1d(at)
        i = jnp.maximum(jnp.searchsorted(self.times, flat) - 1, 0)
        part = (flat - self.times[i]) / self.timedelta[i]
        out = self.rotations[i] * Rotation.from_rotvec(self.rotvecs[i] * part[:, None])
        return out[0] if at.ndim == 0 else out
