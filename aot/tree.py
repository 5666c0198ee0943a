"""Short names for the functions on pytrees of `aot.tree_util`: `aot.tree.map`, `aot.tree.leaves`, ..."""
from aot.tree_util import static as static
from aot.tree_util import tree_all as all
from aot.tree_util import tree_broadcast as broadcast
from aot.tree_util import tree_flatten as flatten
from aot.tree_util import tree_flatten_with_path as flatten_with_path
from aot.tree_util import tree_leaves as leaves
from aot.tree_util import tree_leaves_with_path as leaves_with_path
from aot.tree_util import tree_map as map
from aot.tree_util import tree_map_with_path as map_with_path
from aot.tree_util import tree_reduce as reduce
from aot.tree_util import tree_reduce_associative as reduce_associative
from aot.tree_util import tree_structure as structure
from aot.tree_util import tree_transpose as transpose
from aot.tree_util import tree_unflatten as unflatten

__all__ = ["all", "broadcast", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "map", "map_with_path",
           "reduce", "reduce_associative", "static", "structure", "transpose", "unflatten"]
