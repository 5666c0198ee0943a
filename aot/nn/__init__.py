"""Functions for neural networks: activations, softmax, attention, block-scaled products; `initializers`."""
from aot.nn import initializers as initializers
from aot.nn._activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    identity,
    leaky_relu,
    log1mexp,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softplus,
    sparse_plus,
    sparse_sigmoid,
    squareplus,
    swish,
    tanh,
)
from aot.nn._attention import dot_product_attention
from aot.nn._normalize import log_softmax, logmeanexp, logsumexp, one_hot, softmax, standardize
from aot.nn._scaled import get_scaled_dot_general_config, scaled_dot_general, scaled_matmul
