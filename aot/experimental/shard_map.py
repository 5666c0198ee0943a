"""`shard_map` under its former name."""
from aot.parallel import shard_map

__all__ = ["shard_map"]
