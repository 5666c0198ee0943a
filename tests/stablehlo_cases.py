"""Small StableHLO programs for exporters: one for each form of the structural operations, and edges of the others.

A row is (name, arguments, results, body); `%0`, `%1`, ... are the arguments and the body returns its last lines' values.
Inputs follow from the types: normal numbers, and integers that also fall outside of every array.
"""
from __future__ import annotations

import ml_dtypes
import numpy as np

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i1": np.bool_,
          **{f"i{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)}, **{f"ui{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
          "complex<f32>": np.complex64, "complex<f64>": np.complex128}


def tensor(spec: str) -> str:
    """`f32[2,3]` -> `tensor<2x3xf32>`"""
    element, _, sizes = spec.partition("[")
    return f"tensor<{''.join(n + 'x' for n in sizes.rstrip(']').split(',') if n)}{element}>"


def module(arguments: str, results: str, body: str) -> str:
    args = ", ".join(f"%{i}: {tensor(a)}" for i, a in enumerate(arguments.split()))
    outs = ", ".join(map(tensor, results.split()))
    return f"module {{ func.func public @main({args}) -> ({outs}) {{\n{body}\n}} }}"


def inputs(arguments: str, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [sample(a, rng) for a in arguments.split()]


def sample(spec: str, rng: np.random.Generator) -> np.ndarray:
    element, _, sizes = spec.partition("[")
    shape, dtype = tuple(int(n) for n in sizes.rstrip("]").split(",") if n), np.dtype(DTYPES[element])
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return np.asarray(rng.integers(-3 if dtype.kind == "i" else 0, 9, shape)).astype(dtype)
    noise = rng.standard_normal(shape)
    return np.asarray(noise + 1j * rng.standard_normal(shape) if dtype.kind == "c" else noise).astype(dtype)


# ---- pieces of text ------------------------------------------------------------------------------------------------

def returned(value: str, result: str) -> str:
    return f"  return {value} : {tensor(result)}"


def one(op: str, arguments: str, result: str) -> str:
    """A body of one operation in its generic form: `op` holds its attributes and regions."""
    args = arguments.split()
    names = ", ".join(f"%{i}" for i in range(len(args)))
    return (f"  %r = {op.replace('OPERANDS', names)} : ({', '.join(map(tensor, args))}) -> {tensor(result)}\n"
            + returned("%r", result))


def reducer(kind: str, element: str, a: str = "a", b: str = "b") -> str:
    t = f"tensor<{element}>"
    return (f"({{ ^bb0(%{a}: {t}, %{b}: {t}): %z = stablehlo.{kind} %{a}, %{b} : {t}\n stablehlo.return %z : {t} }})")


def gather(dims: str, sizes: str) -> str:
    return (f'"stablehlo.gather"(OPERANDS) <{{dimension_numbers = #stablehlo.gather<{dims}>, indices_are_sorted = false, '
            f"slice_sizes = array<i64: {sizes}>}}>")


def scatter(dims: str, body: str, unique: bool = False) -> str:
    return (f'"stablehlo.scatter"(OPERANDS) <{{scatter_dimension_numbers = #stablehlo.scatter<{dims}>, '
            f"indices_are_sorted = false, unique_indices = {str(unique).lower()}}}> {body}")


def window(kind: str, element: str, **attrs: str) -> str:
    inner = ", ".join(f"{k} = {v}" for k, v in attrs.items())
    return f'"stablehlo.reduce_window"(OPERANDS) <{{{inner}}}> {reducer(kind, element)}'


def conv(dims: str, inner: str, groups: int = 1, batches: int = 1) -> str:
    return (f"stablehlo.convolution(OPERANDS) dim_numbers = {dims}, window = {{{inner}}} "
            f"{{batch_group_count = {batches} : i64, feature_group_count = {groups} : i64}}")


def ints(*values: int) -> str: return f"array<i64: {', '.join(map(str, values))}>"


def pads(*pairs: tuple[int, int]) -> str:
    return f"dense<{[list(p) for p in pairs]}> : tensor<{len(pairs)}x2xi64>"


REPLACE = "({ ^bb0(%a: tensor<f32>, %b: tensor<f32>): stablehlo.return %b : tensor<f32> })"
SELECT_GE = ("({ ^bb0(%a: tensor<f32>, %b: tensor<f32>): %z = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>)"
             " -> tensor<i1>\n stablehlo.return %z : tensor<i1> }, ")
ADD_BODY = reducer("add", "f32", "c", "d")[1:-1]

# ---- tables --------------------------------------------------------------------------------------------------------

#: name, arguments, result, operation
SINGLE = [
    # gather
    ("take rows", "f32[5,4] i32[3,1]", "f32[3,4]",
     gather("offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1", "1, 4")),
    ("take columns", "f32[5,4] i64[3]", "f32[5,3]",
     gather("offset_dims = [0], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1", "5, 1")),
    ("take in the middle", "f32[2,5,3] i32[2,2]", "f32[2,2,2,3]",
     gather("offset_dims = [0, 3], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 2", "2, 1, 3")),
    ("take without collapsing", "f32[5,4] i32[3,1]", "f32[3,1,4]",
     gather("offset_dims = [1, 2], start_index_map = [0], index_vector_dim = 1", "1, 4")),
    ("windows", "f32[6,7] i32[3,2]", "f32[3,2,4]",
     gather("offset_dims = [1, 2], start_index_map = [0, 1], index_vector_dim = 1", "2, 4")),
    ("windows in front", "f32[6,7] i32[2,3]", "f32[2,4,3]",
     gather("offset_dims = [0, 1], start_index_map = [1, 0], index_vector_dim = 0", "2, 4")),
    ("elements", "f32[6,7] i32[4,2]", "f32[4]",
     gather("collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1", "1, 1")),
    ("batches", "f32[3,6,4] i32[3,2,1]", "f32[3,2,4]",
     gather("offset_dims = [2], collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], "
            "start_index_map = [1], index_vector_dim = 2", "1, 1, 4")),
    ("no results", "f32[6,7] i32[0,2]", "f32[0]",
     gather("collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1", "1, 1")),
    ("take by uint64", "i8[5] ui64[6,1]", "i8[6]",
     gather("collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1", "1")),
    ("complex rows", "complex<f32>[5,4] i32[3,1]", "complex<f32>[3,4]",
     gather("offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1", "1, 4")),
    # scatter
    *((f"scatter {kind} {t}", f"{t}[5,4] i32[6,1] {t}[6,4]", f"{t}[5,4]",
       scatter("update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
               reducer(kind, t)))
      for kind, t in [("add", "f32"), ("multiply", "f32"), ("maximum", "f32"), ("minimum", "f32"), ("add", "bf16"),
                      ("maximum", "f16"), ("add", "i8"), ("multiply", "ui16"), ("maximum", "ui64"), ("minimum", "i16"),
                      ("add", "f64"), ("and", "i1"), ("or", "i1"), ("add", "complex<f32>")]),
    ("scatter windows", "f32[6,7] i32[3,2] f32[3,2,4]", "f32[6,7]",
     scatter("update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1", reducer("add", "f32"))),
    ("scatter columns", "f32[5,4] i32[3] f32[5,3]", "f32[5,4]",
     scatter("update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1], index_vector_dim = 1",
             reducer("add", "f32"))),
    ("scatter elements", "f32[6,7] i32[4,2] f32[4]", "f32[6,7]",
     scatter("inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [1, 0], index_vector_dim = 1", reducer("add", "f32"))),
    ("scatter batches", "f32[3,6,4] i32[3,2,1] f32[3,2,4]", "f32[3,6,4]",
     scatter("update_window_dims = [2], inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], "
             "scatter_dims_to_operand_dims = [1], index_vector_dim = 2", reducer("add", "f32"))),
    ("scatter one", "f32[5,4] i32[1] f32[4]", "f32[5,4]",
     scatter("update_window_dims = [0], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 0", REPLACE)),
    ("scatter one by subtraction", "f32[5,4] i32[1] f32[4]", "f32[5,4]",
     scatter("update_window_dims = [0], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 0",
             reducer("subtract", "f32"), True)),
    ("scatter nothing", "f32[5] i32[0,1] f32[0]", "f32[5]",
     scatter("inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1", reducer("add", "f32"))),
    # windows
    ("pool", "f32[1,8,9,2] f32[]", "f32[1,4,4,2]",
     window("maximum", "f32", window_dimensions=ints(1, 2, 3, 1), window_strides=ints(1, 2, 2, 1))),
    ("pool with padding", "f32[7,6] f32[]", "f32[4,3]",
     window("add", "f32", window_dimensions=ints(3, 2), window_strides=ints(2, 2), padding=pads((1, 1), (0, 1)))),
    ("dilated window", "f32[9] f32[]", "f32[5]",
     window("add", "f32", window_dimensions=ints(3), window_dilations=ints(2))),
    ("dilated base", "f32[4] f32[]", "f32[6]",
     window("maximum", "f32", window_dimensions=ints(5), base_dilations=ints(3))),
    ("negative padding", "f32[9] f32[]", "f32[4]",
     window("minimum", "f32", window_dimensions=ints(3), padding=pads((-1, -2)))),
    ("window of products", "i32[9] i32[]", "i32[3]",
     window("multiply", "i32", window_dimensions=ints(7))),
    ("cumulative sum", "f32[5,9] f32[]", "f32[5,9]",
     window("add", "f32", window_dimensions=ints(1, 9), padding=pads((0, 0), (8, 0)))),
    ("reversed cumulative maximum", "i64[9] i64[]", "i64[9]",
     window("maximum", "i64", window_dimensions=ints(9), padding=pads((0, 8)))),
    ("cumulative product", "i8[9] i8[]", "i8[9]",
     window("multiply", "i8", window_dimensions=ints(9), padding=pads((8, 0)))),
    ("windows of complex numbers", "complex<f32>[9] complex<f32>[]", "complex<f32>[7]",
     window("add", "complex<f32>", window_dimensions=ints(3))),
    ("select and scatter", "f32[6,7] f32[3,3] f32[]", "f32[6,7]",
     f'"stablehlo.select_and_scatter"(OPERANDS) <{{window_dimensions = {ints(2, 3)}, window_strides = {ints(2, 2)}}}> '
     + SELECT_GE + ADD_BODY + ")"),
    ("overlapping select and scatter", "f32[6,7] f32[4,4] f32[]", "f32[6,7]",
     f'"stablehlo.select_and_scatter"(OPERANDS) <{{window_dimensions = {ints(3, 3)}, window_strides = {ints(2, 2)}, '
     f"padding = {pads((1, 2), (1, 1))}}}> " + SELECT_GE + ADD_BODY + ")"),
    # convolutions
    ("convolution", "f32[2,8,9,3] f32[3,2,3,4]", "f32[2,6,8,4]", conv("[b,0,1,f]x[0,1,i,o]->[b,0,1,f]", "")),
    ("strided", "f32[2,3,8,9] f32[4,3,3,2]", "f32[2,4,4,5]",
     conv("[b,f,0,1]x[o,i,0,1]->[b,f,0,1]", "stride = [2, 2], pad = [[1, 1], [1, 1]]")),
    ("dilated kernel", "f32[2,9,3] f32[3,3,4]", "f32[2,5,4]", conv("[b,0,f]x[0,i,o]->[b,0,f]", "rhs_dilate = [2]")),
    ("dilated input", "f32[2,5,3] f32[3,3,4]", "f32[2,11,4]",
     conv("[b,0,f]x[0,i,o]->[b,0,f]", "pad = [[2, 2]], lhs_dilate = [2]")),
    ("cut input", "f32[2,9,3] f32[3,3,4]", "f32[2,4,4]", conv("[b,0,f]x[0,i,o]->[b,0,f]", "pad = [[-1, -2]]")),
    ("turned kernel", "f32[2,9,3] f32[3,3,4]", "f32[2,7,4]", conv("[b,0,f]x[0,i,o]->[b,0,f]", "reverse = [true]")),
    ("feature groups", "f32[2,9,4] f32[3,2,6]", "f32[2,7,6]", conv("[b,0,f]x[0,i,o]->[b,0,f]", "", groups=2)),
    ("batch groups", "f32[4,9,3] f32[3,3,6]", "f32[2,7,6]", conv("[b,0,f]x[0,i,o]->[b,0,f]", "", batches=2)),
    ("three dimensions", "f32[1,4,5,6,2] f32[2,2,2,2,3]", "f32[1,3,4,5,3]",
     conv("[b,0,1,2,f]x[0,1,2,i,o]->[b,0,1,2,f]", "")),
    ("no dimensions", "f32[4,3] f32[3,5]", "f32[4,5]", conv("[b,f]x[i,o]->[b,f]", "")),
    *((f"convolution of {t}", f"{t}[2,9,4] {t}[3,2,6]", f"{t}[2,7,6]", conv("[b,0,f]x[0,i,o]->[b,0,f]", "", groups=2))
      for t in ("f64", "f16", "bf16", "i32", "i8", "complex<f32>")),
    ("other layout", "f32[3,8,9,2] f32[4,3,2,3]", "f32[7,4,8,2]", conv("[f,0,1,b]x[o,i,0,1]->[0,f,1,b]", "pad = [[0, 0], [0, 1]]")),
    # the rest
    *((f"pad {low} {high} {inner}", "f32[3,4] f32[]", f"f32[{3 + 2 * inner + low + high},{4 + 3 * inner + low + high}]",
       f"stablehlo.pad OPERANDS, low = [{low}, {low}], high = [{high}, {high}], interior = [{inner}, {inner}]")
      for low, high, inner in ((1, 2, 0), (0, 0, 2), (-1, 1, 1), (-1, -1, 0))),
    *((f"{kind} of {n} points", f"{'complex<f32>' if kind[0] != 'R' else 'f32'}[3,{n}]",
       f"complex<f32>[3,{n // 2 + 1 if kind[0] == 'R' else n}]", f"stablehlo.fft OPERANDS, type = {kind}, length = [{n}]")
      for kind, n in (("FFT", 7), ("FFT", 128), ("FFT", 256), ("IFFT", 300), ("FFT", 509), ("FFT", 521), ("RFFT", 9), ("RFFT", 512))),
    ("IRFFT", "complex<f32>[3,7]", "f32[3,12]", "stablehlo.fft OPERANDS, type = IRFFT, length = [12]"),
    ("IRFFT of odd size", "complex<f64>[7]", "f64[13]", "stablehlo.fft OPERANDS, type = IRFFT, length = [13]"),
    ("FFT of two axes", "complex<f32>[2,4,6]", "complex<f32>[2,4,6]", "stablehlo.fft OPERANDS, type = FFT, length = [4, 6]"),
    ("RFFT of two axes", "f32[2,4,6]", "complex<f32>[2,4,4]", "stablehlo.fft OPERANDS, type = RFFT, length = [4, 6]"),
    ("bits to bytes", "f32[3]", "ui8[3,4]", "stablehlo.bitcast_convert OPERANDS"),
    ("bytes to bits", "ui8[3,8]", "f64[3]", "stablehlo.bitcast_convert OPERANDS"),
    ("halves", "f64[3]", "f32[3,2]", "stablehlo.bitcast_convert OPERANDS"),
    ("narrow precision", "f32[64]", "f32[64]", "stablehlo.reduce_precision OPERANDS, format = e4m5"),
    ("narrow range", "f64[64]", "f64[64]", "stablehlo.reduce_precision OPERANDS, format = e3m40"),
    *((f"dot {t}", f"{t}[3,4] {t}[4,5]", f"{t}[3,5]", "stablehlo.dot_general OPERANDS, contracting_dims = [1] x [0]")
      for t in ("f32", "f64", "f16", "bf16", "i8", "ui16", "i32", "i64", "ui64", "i1", "complex<f64>")),
    ("dot of batches", "f32[2,4,3] f32[5,2,4]", "f32[2,3,5]",
     "stablehlo.dot_general OPERANDS, batching_dims = [0] x [1], contracting_dims = [1] x [2]"),
    ("dot over two axes", "f32[2,4,3] f32[3,5,4]", "f32[2,5]", "stablehlo.dot_general OPERANDS, contracting_dims = [1, 2] x [2, 0]"),
    ("outer product", "f32[3] f32[4]", "f32[3,4]", "stablehlo.dot_general OPERANDS, contracting_dims = [] x []"),
    ("inner product", "f32[3] f32[3]", "f32[]", "stablehlo.dot_general OPERANDS, contracting_dims = [0] x [0]"),
    ("dot of nothing", "f32[3,0] f32[0,4]", "f32[3,4]", "stablehlo.dot_general OPERANDS, contracting_dims = [1] x [0]"),
    ("wide dot", "i8[3,4] i8[4,5]", "i32[3,5]", "stablehlo.dot_general OPERANDS, contracting_dims = [1] x [0]"),
    *((f"dynamic slice by {t}", f"f32[6,7] {t}[] {t}[]", "f32[2,3]", "stablehlo.dynamic_slice OPERANDS, sizes = [2, 3]")
      for t in ("i32", "i64", "ui8", "ui64")),
    ("dynamic update", "f32[6,7] f32[2,3] i32[] i32[]", "f32[6,7]", "stablehlo.dynamic_update_slice OPERANDS"),
    ("dynamic update of rows", "f32[6,7] f32[2,7] i32[] i32[]", "f32[6,7]", "stablehlo.dynamic_update_slice OPERANDS"),
    ("reverse", "i16[3,4]", "i16[3,4]", "stablehlo.reverse OPERANDS, dims = [0, 1]"),
    ("clamp", "f32[] f32[9] f32[]", "f32[9]", "stablehlo.clamp OPERANDS"),
    *((f"clamp {t}", f"{t}[9] {t}[9] {t}[9]", f"{t}[9]", "stablehlo.clamp OPERANDS") for t in ("i8", "ui64", "bf16")),
    *((f"select {t}", f"i1[9] {t}[9] {t}[9]", f"{t}[9]", "stablehlo.select OPERANDS") for t in DTYPES),
    ("select by a scalar", "i1[] f32[9] f32[9]", "f32[9]", "stablehlo.select OPERANDS"),
    *((f"concatenate {t}", f"{t}[2,3] {t}[2,1] {t}[2,0]", f"{t}[2,4]", "stablehlo.concatenate OPERANDS, dim = 1")
      for t in DTYPES),
    *((f"transpose {t}", f"{t}[2,3,4]", f"{t}[4,2,3]", "stablehlo.transpose OPERANDS, dims = [2, 0, 1]") for t in DTYPES),
    *((f"broadcast {t}", f"{t}[2,1]", f"{t}[3,2,4]", "stablehlo.broadcast_in_dim OPERANDS, dims = [1, 2]") for t in DTYPES),
    ("broadcast backwards", "f32[2,3]", "f32[3,4,2]", "stablehlo.broadcast_in_dim OPERANDS, dims = [2, 0]"),
]
for _t in DTYPES:
    for _kind in ("add", "multiply", *(() if _t.startswith("c") else ("maximum", "minimum")),
                  *(("and", "or", "xor") if "i" in _t else ())):
        SINGLE.append((f"reduce by {_kind} {_t}", f"{_t}[3,5,2] {_t}[]", f"{_t}[3]",
                       f'"stablehlo.reduce"(OPERANDS) <{{dimensions = {ints(1, 2)}}}> {reducer(_kind, _t)}'))


def several(names: str, op: str, arguments: str, results: str) -> str:
    """A body of one operation with several results."""
    args, outs = arguments.split(), results.split()
    operands = ", ".join(f"%{i}" for i in range(len(args)))
    types = ", ".join(map(tensor, outs))
    values = ", ".join(f"%r#{i}" for i in range(len(outs)))
    return (f"  %r:{len(outs)} = {op.replace('OPERANDS', operands)} : ({', '.join(map(tensor, args))}) -> ({types})\n"
            f"  return {values} : {types}")


def comparator(*elements: str, text: str) -> str:
    args = ", ".join(f"%a{i}: tensor<{t}>, %b{i}: tensor<{t}>" for i, t in enumerate(elements))
    return f"({{ ^bb0({args}):\n{text}\n stablehlo.return %z : tensor<i1> }})"


def less(i: int, t: str, direction: str = "LT", kind: str = "", name: str = "z") -> str:
    return f" %{name} = stablehlo.compare {direction}, %a{i}, %b{i}{kind} : (tensor<{t}>, tensor<{t}>) -> tensor<i1>\n"


def sort(dimension: int, body: str) -> str:
    return f'"stablehlo.sort"(OPERANDS) <{{dimension = {dimension} : i64, is_stable = true}}> {body}'


TWO_KEYS = (less(0, "i32", name="first") + less(0, "i32", "EQ", name="equal") + less(1, "f32", name="rest")
            + " %both = stablehlo.and %equal, %rest : tensor<i1>\n %z = stablehlo.or %first, %both : tensor<i1>")
BY_SIZE = (" %p = stablehlo.abs %a0 : tensor<f32>\n %q = stablehlo.abs %b0 : tensor<f32>\n"
           " %z = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>\n")
ARGMAX = """({ ^bb0(%a: tensor<f32>, %i: tensor<i32>, %b: tensor<f32>, %j: tensor<i32>):
  %g = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %v = stablehlo.select %g, %a, %b : tensor<i1>, tensor<f32>
  %w = stablehlo.select %g, %i, %j : tensor<i1>, tensor<i32>
  stablehlo.return %v, %w : tensor<f32>, tensor<i32> })"""

#: name, arguments, results, operation
SEVERAL = [
    ("sort two keys", "i32[40] f32[40]", "i32[40] f32[40]", sort(0, comparator("i32", "f32", text=TWO_KEYS))),
    ("sort by size, short", "f32[3,20] i32[3,20]", "f32[3,20] i32[3,20]", sort(1, comparator("f32", "i32", text=BY_SIZE))),
    ("sort by size, long", "f32[300,2] i32[300,2]", "f32[300,2] i32[300,2]", sort(0, comparator("f32", "i32", text=BY_SIZE))),
    *((f"sort {t} {d}", f"{t}[2,9] i32[2,9]", f"{t}[2,9] i32[2,9]", sort(1, comparator(t, "i32", text=less(0, t, d))))
      for t in DTYPES if not t.startswith("c") for d in ("LT", "GT")),
    ("reduce two", "f32[4,5] i32[4,5] f32[] i32[]", "f32[4] i32[4]",
     f'"stablehlo.reduce"(OPERANDS) <{{dimensions = {ints(1)}}}> {ARGMAX}'),
    *((f"random bits {t} {shape}", "ui64[2]", f"ui64[2] {t}[{shape}]", "stablehlo.rng_bit_generator OPERANDS, algorithm = THREE_FRY")
      for t, shape in (("ui32", "6"), ("ui32", "7"), ("ui32", "3,5"), ("ui32", "3,4"), ("ui32", "5,3"), ("ui32", "3,7,5"), ("ui64", "5"), ("ui32", ""), ("ui8", "6"),
                          ("ui16", "7"))),
    *((f"random bits of Philox {t} {shape}", "ui64[3]", f"ui64[3] {t}[{shape}]",
       "stablehlo.rng_bit_generator OPERANDS, algorithm = PHILOX")
      for t, shape in (("ui32", "6"), ("ui64", "2,3"), ("ui32", "3,5"), ("ui16", "7"))),
]

#: name, arguments, results, body
BODIES = [
    ("loop", "i32[] f32[3]", "i32[] f32[3]", """
  %r:2 = stablehlo.while(%i = %0, %x = %1) : tensor<i32>, tensor<3xf32>
    cond { %n = stablehlo.constant dense<7> : tensor<i32>
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1> }
    do { %k = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %k : tensor<i32>
      %y = stablehlo.add %x, %1 : tensor<3xf32>
      stablehlo.return %j, %y : tensor<i32>, tensor<3xf32> }
  return %r#0, %r#1 : tensor<i32>, tensor<3xf32>"""),
    ("choice", "i1[] f32[3]", "f32[3]", """
  %r = "stablehlo.if"(%0) ({ %a = stablehlo.negate %1 : tensor<3xf32>
    stablehlo.return %a : tensor<3xf32> }, { stablehlo.return %1 : tensor<3xf32> }) : (tensor<i1>) -> tensor<3xf32>
  return %r : tensor<3xf32>"""),
    ("choice of several", "i32[] f32[3]", "f32[3]", """
  %r = "stablehlo.case"(%0) ({ %a = stablehlo.negate %1 : tensor<3xf32>
    stablehlo.return %a : tensor<3xf32> }, { stablehlo.return %1 : tensor<3xf32> },
    { %b = stablehlo.abs %1 : tensor<3xf32>
    stablehlo.return %b : tensor<3xf32> }) : (tensor<i32>) -> tensor<3xf32>
  return %r : tensor<3xf32>"""),
    ("tuples and tokens", "f32[3]", "f32[3]", """
  %t = stablehlo.tuple %0, %0 : tuple<tensor<3xf32>, tensor<3xf32>>
  %x = stablehlo.get_tuple_element %t[1] : (tuple<tensor<3xf32>, tensor<3xf32>>) -> tensor<3xf32>
  %k = stablehlo.after_all : !stablehlo.token
  %y:2 = stablehlo.optimization_barrier %x, %k : tensor<3xf32>, !stablehlo.token
  return %y#0 : tensor<3xf32>"""),
    ("map", "f32[3] f32[3]", "f32[3]", """
  %r = "stablehlo.map"(%0, %1) <{dimensions = array<i64: 0>}> ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.multiply %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32> }) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %r : tensor<3xf32>"""),
    ("batch norm", "f32[4,3] f32[3] f32[3]", "f32[4,3] f32[3] f32[3]", """
  %r:3 = "stablehlo.batch_norm_training"(%0, %1, %2) <{epsilon = 1.0e-3 : f32, feature_index = 1 : i64}>
    : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>)
  return %r#0, %r#1, %r#2 : tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>"""),
    ("batch norm gradient", "f32[4,3] f32[3] f32[3] f32[3] f32[4,3]", "f32[4,3] f32[3] f32[3]", """
  %v = stablehlo.multiply %3, %3 : tensor<3xf32>
  %r:3 = "stablehlo.batch_norm_grad"(%0, %1, %2, %v, %4) <{epsilon = 1.0e-3 : f32, feature_index = 1 : i64}>
    : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<4x3xf32>)
    -> (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>)
  return %r#0, %r#1, %r#2 : tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>"""),
    ("batch norm inference", "f32[4,3] f32[3] f32[3] f32[3] f32[3]", "f32[4,3]", """
  %v = stablehlo.multiply %4, %4 : tensor<3xf32>
  %r = "stablehlo.batch_norm_inference"(%0, %1, %2, %3, %v) <{epsilon = 1.0e-3 : f32, feature_index = 1 : i64}>
    : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  return %r : tensor<4x3xf32>"""),
    ("constants of all types", "f32[2]", "f32[2] bf16[2] complex<f32>[2] i1[3] ui64[2]", """
  %a = stablehlo.constant dense<[1.5, 0x7FC0]> : tensor<2xbf16>
  %b = stablehlo.constant dense<[(1.0, -2.0), (0x7F800000, 4.0)]> : tensor<2xcomplex<f32>>
  %c = stablehlo.constant dense<[true, false, true]> : tensor<3xi1>
  %d = stablehlo.constant dense<18446744073709551615> : tensor<2xui64>
  return %0, %a, %b, %c, %d : tensor<2xf32>, tensor<2xbf16>, tensor<2xcomplex<f32>>, tensor<3xi1>, tensor<2xui64>"""),
    ("composite", "f32[3]", "f32[3]", """
  %r = stablehlo.composite "my.double" %0 {decomposition = @double} : (tensor<3xf32>) -> tensor<3xf32>
  return %r : tensor<3xf32> }
  func.func private @double(%x: tensor<3xf32>) -> tensor<3xf32> {
  %y = stablehlo.add %x, %x : tensor<3xf32>
  return %y : tensor<3xf32>"""),
    ("triangular systems", "f32[2,5,5] f32[2,5,3] f32[2,3,5]", "f32[2,5,3] f32[2,5,3] f32[2,3,5] f32[2,5,3]", """
  %e = stablehlo.constant dense<4.0> : tensor<2x5x5xf32>
  %i = stablehlo.iota dim = 1 : tensor<2x5x5xi32>
  %j = stablehlo.iota dim = 2 : tensor<2x5x5xi32>
  %d = stablehlo.compare EQ, %i, %j : (tensor<2x5x5xi32>, tensor<2x5x5xi32>) -> tensor<2x5x5xi1>
  %a = stablehlo.select %d, %e, %0 : tensor<2x5x5xi1>, tensor<2x5x5xf32>
  %p = "stablehlo.triangular_solve"(%a, %1) <{left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}> : (tensor<2x5x5xf32>, tensor<2x5x3xf32>) -> tensor<2x5x3xf32>
  %q = "stablehlo.triangular_solve"(%a, %1) <{left_side = true, lower = false, unit_diagonal = true, transpose_a = #stablehlo<transpose TRANSPOSE>}> : (tensor<2x5x5xf32>, tensor<2x5x3xf32>) -> tensor<2x5x3xf32>
  %r = "stablehlo.triangular_solve"(%a, %2) <{left_side = false, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose ADJOINT>}> : (tensor<2x5x5xf32>, tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
  %s = "stablehlo.triangular_solve"(%a, %1) <{left_side = true, lower = false, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}> : (tensor<2x5x5xf32>, tensor<2x5x3xf32>) -> tensor<2x5x3xf32>
  return %p, %q, %r, %s : tensor<2x5x3xf32>, tensor<2x5x3xf32>, tensor<2x3x5xf32>, tensor<2x5x3xf32>"""),
]

CASES = [*((n, a, r, one(op, a, r)) for n, a, r, op in SINGLE),
         *((n, a, r, several(n, op, a, r)) for n, a, r, op in SEVERAL), *BODIES]
