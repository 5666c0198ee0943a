"""Special functions."""
from aot.scipy._util import lazily

_FILES = {
    "gamma_family": """
        beta betainc betaln comb digamma factorial gamma gammainc gammaincc gammaln gammasgn loggamma multigammaln poch
        polygamma""",
    "error_functions": "dawsn erf erfc erfcx erfinv fresnel log_ndtr ndtr ndtri owens_t wofz",
    "logarithms": """
        boxcox boxcox1p entr expit kl_div log_softmax logit logsumexp rel_entr softmax xlog1py xlogy""",
    "integrals": "exp1 expi expn sici spence",
    "bessel": "bessel_jn i0 i0e i1 i1e",
    "zeta_function": "bernoulli zeta",
    "hypergeometric": "hyp1f1 hyp2f1",
    "harmonics": "sph_harm_y",
}
__getattr__, __dir__, __all__ = lazily(__name__, _FILES)
