/* Element types, and arrays in safetensors layout. */
#ifndef AOT_TENSORS_H
#define AOT_TENSORS_H

#include "archive.h"

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#endif
#include "../third_party/pjrt_c_api.h"
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

typedef struct dtype_row {
  const char *name, *safetensors, *brief;
  uint8_t size;
  PJRT_Buffer_Type pjrt;
} dtype_row;

static const dtype_row dtype_rows[AOT_NUM_DTYPES] = {
    {"invalid", NULL, "?", 0, PJRT_Buffer_Type_INVALID},
    {"bool", "BOOL", "bool", 1, PJRT_Buffer_Type_PRED},
    {"int8", "I8", "i8", 1, PJRT_Buffer_Type_S8},
    {"int16", "I16", "i16", 2, PJRT_Buffer_Type_S16},
    {"int32", "I32", "i32", 4, PJRT_Buffer_Type_S32},
    {"int64", "I64", "i64", 8, PJRT_Buffer_Type_S64},
    {"uint8", "U8", "u8", 1, PJRT_Buffer_Type_U8},
    {"uint16", "U16", "u16", 2, PJRT_Buffer_Type_U16},
    {"uint32", "U32", "u32", 4, PJRT_Buffer_Type_U32},
    {"uint64", "U64", "u64", 8, PJRT_Buffer_Type_U64},
    {"float16", "F16", "f16", 2, PJRT_Buffer_Type_F16},
    {"bfloat16", "BF16", "bf16", 2, PJRT_Buffer_Type_BF16},
    {"float32", "F32", "f32", 4, PJRT_Buffer_Type_F32},
    {"float64", "F64", "f64", 8, PJRT_Buffer_Type_F64},
    {"complex64", "C64", "c64", 8, PJRT_Buffer_Type_C64},
    {"complex128", NULL, "c128", 16, PJRT_Buffer_Type_C128},
    {"float8_e4m3fn", "F8_E4M3", "f8_e4m3fn", 1, PJRT_Buffer_Type_F8E4M3FN},
    {"float8_e5m2", "F8_E5M2", "f8_e5m2", 1, PJRT_Buffer_Type_F8E5M2},
    {"float8_e4m3b11fnuz", NULL, "f8_e4m3b11fnuz", 1, PJRT_Buffer_Type_F8E4M3B11FNUZ},
    {"float8_e4m3fnuz", NULL, "f8_e4m3fnuz", 1, PJRT_Buffer_Type_F8E4M3FNUZ},
    {"float8_e5m2fnuz", NULL, "f8_e5m2fnuz", 1, PJRT_Buffer_Type_F8E5M2FNUZ},
    {"int4", NULL, "i4", 1, PJRT_Buffer_Type_S4},
    {"uint4", NULL, "u4", 1, PJRT_Buffer_Type_U4},
};

static aot_dtype dtype_named(json name) {
  int i;
  for (i = 1; i < AOT_NUM_DTYPES; i++)
    if (json_equals(name, dtype_rows[i].name, strlen(dtype_rows[i].name))) return (aot_dtype)i;
  return AOT_INVALID;
}

/* A shape as dimensions in the arena, and the bytes of such an array.  False where it is no shape or too large. */
static bool read_shape(arena *memory, json shape, size_t item, size_t *rank, const int64_t **dims, size_t *size) {
  json_iter it = json_each(shape);
  json key, value;
  uint64_t total = item;
  int64_t *out;
  size_t n = 0;
  if (!json_is(shape, '[')) return false;
  *rank = json_count(shape);
  if (*rank > 64 || !(out = arena_new(memory, *rank + 1, sizeof *out))) return false;
  while (json_next(&it, &key, &value)) {
    uint64_t d;
    if (!json_size(value, &d) || (d && total > (uint64_t)(PTRDIFF_MAX) / d)) return false;
    total *= d, out[n++] = (int64_t)d;
  }
  *dims = out, *size = (size_t)total;
  return true;
}

/* ---- safetensors ---- */

typedef struct tensor {
  json name;
  aot_array array;
} tensor;
typedef struct tensors {
  tensor *items;
  size_t count;
} tensors;

static aot_dtype safetensors_dtype(json name) {
  int i;
  for (i = 1; i < AOT_NUM_DTYPES; i++)
    if (dtype_rows[i].safetensors && json_equals(name, dtype_rows[i].safetensors, strlen(dtype_rows[i].safetensors)))
      return (aot_dtype)i;
  return AOT_INVALID;
}

/* The declared type of a tensor that is stored as U8 with one more axis: "dtype:NAME" of the metadata. */
static json declared_type(json metadata, json name) {
  json_iter it = json_each(metadata);
  json key, value, none = {NULL, NULL};
  while (metadata.at && json_next(&it, &key, &value)) {
    const size_t n = (size_t)(name.end - name.at);
    if ((size_t)(key.end - key.at) == n + 6 && !memcmp(key.at + 1, "dtype:", 6) && !memcmp(key.at + 7, name.at + 1, n - 1))
      return value;
  }
  return none;
}

static const char *read_tensor(arena *memory, json entry, json type, bytes data, aot_array *a) {
  const json offsets = json_get(entry, "data_offsets");
  json_iter it = json_each(offsets);
  json key, first, second;
  uint64_t start, end;
  a->dtype = safetensors_dtype(json_get(entry, "dtype"));
  if (a->dtype == AOT_INVALID) return "a dtype that is not known";
  if (!read_shape(memory, json_get(entry, "shape"), dtype_rows[a->dtype].size, &a->rank, &a->dims, &a->bytes)) return "a shape";
  if (json_count(offsets) != 2 || !json_next(&it, &key, &first) || !json_next(&it, &key, &second)) return "data_offsets";
  if (!json_size(first, &start) || !json_size(second, &end) || end < start || end > data.size || end - start != a->bytes)
    return "data_offsets";
  a->data = (void *)(uintptr_t)(data.at + start);
  if (type.at) {
    a->dtype = dtype_named(type);
    if (a->dtype == AOT_INVALID || !a->rank || a->dims[a->rank - 1] != dtype_rows[a->dtype].size) return "its declared dtype";
    a->rank--;
  }
  return NULL;
}

/* The arrays of some bytes in safetensors layout: views, nothing is copied. */
static aot_code read_tensors(arena *memory, bytes file, const char *where, tensors *out, aot_error *error) {
  static const char layout[] = "damaged: not in safetensors layout (%s)";
  json header, metadata, key, value;
  json_iter it;
  bytes data;
  if (file.size < 8 || le64(file.at) > file.size - 8) return fail(error, AOT_ERROR_FORMAT, where, AGAIN, layout, "header size");
  header = json_parse((const char *)file.at + 8, (size_t)le64(file.at));
  if (!json_is(header, '{')) return fail(error, AOT_ERROR_FORMAT, where, AGAIN, layout, "header");
  data.at = file.at + 8 + le64(file.at), data.size = file.size - 8 - (size_t)le64(file.at);
  metadata = json_get(header, "__metadata__");
  out->items = arena_new(memory, json_count(header) + 1, sizeof *out->items);
  if (!out->items) return no_memory(error);
  for (out->count = 0, it = json_each(header); json_next(&it, &key, &value);) {
    const char *why;
    if (json_equals(key, "__metadata__", 12) || (key.end - key.at > 6 && !memcmp(key.at + 1, "__pad", 5))) continue;
    out->items[out->count].name = key;
    why = read_tensor(memory, value, declared_type(metadata, key), data, &out->items[out->count].array);
    if (why) return fail(error, AOT_ERROR_FORMAT, where, AGAIN, layout, why);
    out->count++;
  }
  return AOT_OK;
}

static const aot_array *find_tensor(const tensors *t, const char *name) {
  size_t i;
  for (i = 0; i < t->count; i++)
    if (json_equals(t->items[i].name, name, strlen(name))) return &t->items[i].array;
  return NULL;
}

#endif
