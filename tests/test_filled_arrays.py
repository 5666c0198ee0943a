"""Arrays filled with keys, and shapes that are refused."""
import numpy as np
import pytest

import aot
import aot.lax
from tests.support import compare


def test_arrays_of_keys():
    for name in ("zeros_like", "ones_like", "empty_like"):
        compare(lambda m, lax: lambda: m.random.key_data(getattr(m.numpy, name)(m.random.split(m.random.key(3)))))
    compare(lambda m, lax: lambda: m.random.key_data(m.numpy.full_like(m.random.split(m.random.key(0)), m.random.key(1))))
    compare(lambda m, lax: lambda: m.random.key_data(m.numpy.zeros((2, 3), m.random.key(0).dtype)))
    compare(lambda m, lax: lambda: m.random.key_data(m.device_get(m.random.key(5))))


@pytest.mark.parametrize("call", [
    lambda m, lax: m.numpy.zeros((-1,)), lambda m, lax: lax.broadcast_in_dim(1., (-2,), ()), lambda m, lax: lax.iota(np.int32, -2),
    lambda m, lax: lax.full((2, -1), 1.), lambda m, lax: m.random.normal(m.random.key(0), (-2,))])
def test_negative_sizes_are_refused(call):
    with pytest.raises(TypeError, match="nonnegative|negative"):
        call(aot, aot.lax)
