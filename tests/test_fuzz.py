"""A sample of the random programs of tests/fuzz.py."""
import pytest

SAMPLED = 2     # rows: one in 2, see conftest.py

pytest.importorskip("jax")
from tests import fuzz


@pytest.mark.parametrize("seed", range(5000, 5040))
def test_random_program(seed):
    assert fuzz.check(seed) is None
