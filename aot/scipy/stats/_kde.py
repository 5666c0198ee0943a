"""Gaussian kernel density estimates."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import random
from aot.api import vmap
from aot.numpy._util import check
from aot.scipy._util import inexact, is_complex
from aot.scipy.special.error_functions import ndtr
from aot.scipy.special.logarithms import logsumexp
from aot.tree_util import register_pytree_node_class

Array = Any


@register_pytree_node_class
class gaussian_kde:
    """A density: the mean of normal densities around the points of dataset, shape (d, n), with their covariance shrunk.

    bw_method: "scott", "silverman", the factor itself, or a function from the estimate to it.  weights: shape (n,)."""
    __slots__ = ("neff", "dataset", "weights", "covariance", "inv_cov")

    def __init__(self, dataset, bw_method=None, weights=None):
        check("gaussian_kde", dataset)
        dataset = jnp.atleast_2d(dataset)
        if is_complex(dataset):
            raise NotImplementedError("gaussian_kde does not support complex data")
        if not dataset.size > 1:
            raise ValueError("`dataset` input should have multiple elements.")
        self.dataset, self.weights = self._weighted(dataset, weights)
        self.neff = 1 / jnp.sum(self.weights ** 2)
        spread = jnp.atleast_2d(jnp.cov(self.dataset, rowvar=True, bias=False, aweights=self.weights))
        factor = self._factor(bw_method)
        self.covariance, self.inv_cov = spread * factor ** 2, jnp.linalg.inv(spread) / factor ** 2

    @staticmethod
    def _weighted(dataset, weights):
        n = dataset.shape[1]
        if weights is None:
            dataset = inexact("gaussian_kde", dataset)
            return dataset, jnp.full(n, 1.0 / n, dtype=dataset.dtype)
        check("gaussian_kde", weights)
        weights = jnp.atleast_1d(weights)
        if weights.ndim != 1:
            raise ValueError("`weights` input should be one-dimensional.")
        if len(weights) != n:
            raise ValueError("`weights` input should be of length n")
        dataset, row = inexact("gaussian_kde", dataset, weights[None])
        return dataset, row[0] / jnp.sum(row)

    def _factor(self, bw_method: Any) -> Any:
        if bw_method is None or isinstance(bw_method, str) and bw_method == "scott":
            return jnp.power(self.neff, -1. / (self.d + 4))
        if isinstance(bw_method, str) and bw_method == "silverman":
            return jnp.power(self.neff * (self.d + 2) / 4.0, -1. / (self.d + 4))
        if jnp.isscalar(bw_method) and not isinstance(bw_method, str):
            return bw_method
        if callable(bw_method):
            return bw_method(self)
        raise ValueError("`bw_method` should be 'scott', 'silverman', a scalar, or a callable.")

    def tree_flatten(self):
        """The arrays; there is nothing else."""
        return tuple(getattr(self, name) for name in self.__slots__), None

    @classmethod
    def tree_unflatten(cls, aux_data, children):
        """The inverse of tree_flatten."""
        kde = object.__new__(cls)
        for name, value in zip(cls.__slots__, children):
            setattr(kde, name, value)
        return kde

    @property
    def d(self): return self.dataset.shape[0]

    @property
    def n(self): return self.dataset.shape[1]

    def _points(self, points):
        points = jnp.atleast_2d(points)
        if is_complex(points):
            raise NotImplementedError("gaussian_kde does not support complex coordinates")
        d, m = points.shape
        if d == self.d:
            return points
        if d == 1 and m == self.d:
            return points.reshape(self.d, 1)
        raise ValueError(f"points have dimension {d}, dataset has dimension {self.d}")

    def logpdf(self, x):
        """Log density at x, shape (d, m) -> (m,)."""
        check("logpdf", x)
        data, x, precision = inexact("gaussian_kde", self.dataset, self._points(x), self.inv_cov)
        white = jnp.linalg.cholesky(precision)
        data, x = data.T @ white, x.T @ white
        constant = jnp.sum(jnp.log(jnp.diag(white))) - 0.5 * self.d * np.log(2 * np.pi)
        log_weights = jnp.log(self.weights).astype(constant.dtype)
        at = lambda point: logsumexp(log_weights + (constant - 0.5 * jnp.sum(jnp.square(data - point[None]), -1)))
        return vmap(at)(x)

    def evaluate(self, points):
        """Density at points, shape (d, m) -> (m,)."""
        return jnp.exp(self.logpdf(points))

    __call__ = evaluate

    def pdf(self, x):
        """`evaluate` under scipy's other name."""
        return self.evaluate(x)

    def _overlap(self, cov, mean):
        """Integral of the product with normal densities of this covariance around mean, shape (d,)."""
        chol = jnp.linalg.cholesky(cov)
        norm = jnp.sqrt(2 * np.pi) ** self.d * jnp.prod(jnp.diag(chol))
        off = self.dataset - mean[:, None]
        return jnp.sum(jnp.exp(-0.5 * jnp.sum(off * jnp.linalg.solve(cov, off), axis=0)) * self.weights) / norm

    def integrate_gaussian(self, mean, cov):
        """Integral of the density times a normal density."""
        mean, cov = jnp.atleast_1d(jnp.squeeze(mean)), jnp.atleast_2d(cov)
        if mean.shape != (self.d,):
            raise ValueError(f"mean does not have dimension {self.d}")
        if cov.shape != (self.d, self.d):
            raise ValueError(f"covariance does not have dimension {self.d}")
        return self._overlap(self.covariance + cov, mean)

    def integrate_box_1d(self, low, high):
        """Probability of [low, high], for d = 1."""
        if self.d != 1:
            raise ValueError("integrate_box_1d() only handles 1D pdfs")
        if np.ndim(low) != 0 or np.ndim(high) != 0:
            raise ValueError("the limits of integration in integrate_box_1d must be scalars")
        sigma = jnp.squeeze(jnp.sqrt(self.covariance))
        low, high = (jnp.squeeze((v - self.dataset) / sigma) for v in (low, high))
        return jnp.sum(self.weights * (ndtr(high) - ndtr(low)))

    def integrate_kde(self, other):
        """Integral of the product with another estimate."""
        if other.d != self.d:
            raise ValueError("KDEs are not the same dimensionality")
        cov = self.covariance + other.covariance
        return jnp.sum(vmap(lambda mean: self._overlap(cov, mean), in_axes=1)(other.dataset) * other.weights)

    def resample(self, key, shape=()):
        """Samples, shape (d, *shape)."""
        which, noise = random.split(key)
        points = random.choice(which, self.n, shape=shape, p=self.weights)
        mean = jnp.zeros(self.d, self.covariance.dtype)
        off = random.multivariate_normal(noise, mean, self.covariance, shape=shape, dtype=self.dataset.dtype)
        return self.dataset[:, points] + off.T

    def integrate_box(self, low_bounds, high_bounds, maxpts=None):
        """Not supported; see integrate_box_1d."""
        raise NotImplementedError("only 1D box integrations are supported; use `integrate_box_1d`")

    def set_bandwidth(self, bw_method=None):
        """Not supported: make another estimate."""
        raise NotImplementedError("dynamically changing the bandwidth method is not supported")
