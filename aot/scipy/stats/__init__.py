"""Probability distributions (a module each), ranks, modes, kernel density estimates."""
from aot.scipy._util import lazily

_DISTRIBUTIONS = """
    bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l gumbel_r laplace logistic
    multinomial multivariate_normal nbinom norm pareto poisson t truncnorm uniform vonmises wrapcauchy"""
__getattr__, __dir__, __all__ = lazily(__name__, {"_core": "mode rankdata sem", "_kde": "gaussian_kde"}, _DISTRIBUTIONS)
