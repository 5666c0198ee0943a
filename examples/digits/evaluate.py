"""Load the compiled classifier and measure it.  Nothing of the compiler is imported, only the loader and numpy."""
import sys

import numpy as np

import aot_runtime


def main(artifact, test):
    predict = aot_runtime.load(artifact, strict=True)["predict"]
    data = np.load(test)
    result = predict(data["x"])
    accuracy = np.mean(result["digit"] == data["y"])
    assert not {"aot", "jax"} & set(sys.modules)
    print(f"{predict.signature} on {predict.target}")
    print(f"accuracy on {len(data['y'])} held-out images: {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    sys.exit(int(main(*sys.argv[1:]) < 0.95))
