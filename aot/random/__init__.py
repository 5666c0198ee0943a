"""Random numbers: keys that are split, never advanced behind the caller's back, and samplers that consume them.

    key = aot.random.key(0)
    key, sub = aot.random.split(key)
    x = aot.random.normal(sub, (3,))

The values are those of `jax.random` for the same keys.
"""
from aot.random._binomial import binomial, multinomial
from aot.random._continuous import (
                                    ball,
                                    cauchy,
                                    exponential,
                                    generalized_normal,
                                    gumbel,
                                    laplace,
                                    logistic,
                                    pareto,
                                    rayleigh,
                                    triangular,
                                    wald,
                                    weibull_min,
)
from aot.random._discrete import categorical, choice, geometric, permutation, poisson
from aot.random._gamma import beta, chisquare, dirichlet, f, gamma, loggamma, random_gamma_p, t
from aot.random._keys import PRNGKey, clone, fold_in, key, key_data, key_dtype, key_impl, split, wrap_key_data
from aot.random._normal import (
                                    double_sided_maxwell,
                                    lognormal,
                                    maxwell,
                                    multivariate_normal,
                                    normal,
                                    orthogonal,
                                    truncated_normal,
)
from aot.random._uniform import bernoulli, bits, rademacher, randint, uniform

