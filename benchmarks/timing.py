"""What the benchmarks of calls share."""
import time


def best(call, n=5000, rounds=5):
    """Microseconds a call, the fastest of some rounds."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(n):
            call()
        times.append(time.perf_counter() - start)
    return min(times) / n * 1e6
