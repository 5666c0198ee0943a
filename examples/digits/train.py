"""Train on scikit-learn's bundled digits; writes FOLDER/params.npz and FOLDER/test.npz (the held-out images)."""
import sys

import numpy as np
from model import adam, init
from sklearn.datasets import load_digits

import aot


def data():
    """1797 images of 8x8 pixels, shuffled: 1437 to train on and 360 to test with."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x, y = digits.data[order].astype(np.float32), digits.target[order].astype(np.int32)
    return (x[:1437], y[:1437]), (x[1437:], y[1437:])


def main(folder):
    (x, y), (test_x, test_y) = data()
    params = init(aot.random.key(0))
    zeros = [aot.tree.map(lambda p: p * 0, params) for _ in range(2)]
    state, rng = (np.int32(0), *zeros), np.random.default_rng(1)
    step = aot.jit(adam, donate_argnums=(0, 1))
    for epoch in range(30):
        for batch in rng.permutation(1408).reshape(-1, 64):
            params, state, loss = step(params, state, x[batch], y[batch])
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {float(loss):.4f}")
    np.savez(f"{folder}/params.npz", **{k: np.asarray(v) for k, v in params.items()})
    np.savez(f"{folder}/test.npz", x=test_x, y=test_y)


if __name__ == "__main__":
    main(sys.argv[1])
