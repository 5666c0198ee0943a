/* Executables: deserializing one, compiling a StableHLO program, and checking that it returns what the manifest says. */
#ifndef AOT_EXECUTABLE_H
#define AOT_EXECUTABLE_H

#include "pjrt.h"

/* ---- CompileOptionsProto, as far as it is needed ---- */

static void proto_varint(text *t, uint64_t value) {
  unsigned char out[10];
  size_t n = 0;
  do {
    out[n++] = (unsigned char)((value & 127) | (value > 127 ? 128 : 0));
    value >>= 7;
  } while (value);
  text_put(t, out, n);
}

static void proto_bytes(text *t, unsigned field, const void *data, size_t size) {
  proto_varint(t, field << 3 | 2);
  proto_varint(t, size);
  text_put(t, data, size);
}

/* OptionOverrideProto of an XLA flag: string 1, bool 2, int64 3, double 4. */
static void proto_flag_value(text *t, arena *memory, json value) {
  int64_t whole;
  if (json_is(value, '"')) {
    const char *s = json_string(memory, value);
    proto_bytes(t, 1, s ? s : "", s ? strlen(s) : 0);
  } else if (json_is(value, 't') || json_is(value, 'f')) {
    proto_varint(t, 2 << 3);
    proto_varint(t, json_is(value, 't'));
  } else if (json_int(value, &whole)) {
    proto_varint(t, 3 << 3);
    proto_varint(t, (uint64_t)whole);
  } else {
    char digits[64] = "";
    const size_t n = (size_t)(value.end - value.at);
    double real;
    memcpy(digits, value.at, n < 63 ? n : 63);
    real = strtod(digits, NULL);
    proto_varint(t, 4 << 3 | 1);
    text_put(t, &real, 8);
  }
}

/* One replica and one partition on the device: ExecutableBuildOptionsProto {num_replicas 4, num_partitions 5,
 * device_assignment 9 {replica_count 1, computation_count 2, computation_devices 3 {replica_device_ids 1}}}. */
static void build_options(text *t, const aot_runtime *r) {
  static const unsigned char one_by_one[] = {4 << 3, 1, 5 << 3, 1}, counts[] = {1 << 3, 1, 2 << 3, 1};
  text id = {NULL, 0, 0, false}, devices = {NULL, 0, 0, false}, assignment = {NULL, 0, 0, false};
  proto_varint(&id, (uint64_t)r->device_id);
  proto_bytes(&devices, 1, id.data, id.size);
  text_put(&assignment, counts, sizeof counts);
  proto_bytes(&assignment, 3, devices.data, devices.size);
  text_put(t, one_by_one, sizeof one_by_one);
  proto_bytes(t, 9, assignment.data, assignment.size);
  t->failed |= id.failed || devices.failed || assignment.failed;
  free(id.data), free(devices.data), free(assignment.data);
}

/* The device and the flags: executable_build_options 3, env_option_overrides 7 {key 1, value 2}. */
static void compile_options(text *t, const aot_runtime *r, arena *memory, json flags) {
  json_iter it = json_each(flags);
  json key, value;
  text build = {NULL, 0, 0, false};
  build_options(&build, r);
  proto_bytes(t, 3, build.data, build.size);
  t->failed |= build.failed;
  free(build.data);
  while (it.object && json_next(&it, &key, &value)) {
    text entry = {NULL, 0, 0, false}, inner = {NULL, 0, 0, false};
    const char *name = json_string(memory, key);
    proto_flag_value(&inner, memory, value);
    proto_bytes(&entry, 1, name ? name : "", name ? strlen(name) : 0);
    proto_bytes(&entry, 2, inner.data, inner.size);
    proto_bytes(t, 7, entry.data, entry.size);
    t->failed |= entry.failed || inner.failed;
    free(entry.data), free(inner.data);
  }
}

static aot_code compile_program(const aot_runtime *r, bytes program, json flags, const char *where, PJRT_LoadedExecutable **out,
                                aot_error *error) {
  arena memory = {NULL};
  text options = {NULL, 0, 0, false};
  PJRT_Program p;
  aot_code code;
  ARGS(PJRT_Client_Compile, a);
  memset(&p, 0, sizeof p);
  p.struct_size = PJRT_Program_STRUCT_SIZE;
  p.code = (char *)(uintptr_t)program.at, p.code_size = program.size;
  p.format = "mlir", p.format_size = 4;
  compile_options(&options, r, &memory, flags);
  a.client = r->client, a.program = &p, a.compile_options = options.data, a.compile_options_size = options.size;
  code = options.failed ? no_memory(error)
                        : pjrt_failed(r->api, r->api->PJRT_Client_Compile(&a), AOT_ERROR_HOST, where,
                                      "its StableHLO program does not compile here", error);
  *out = code ? NULL : a.executable;
  free(options.data);
  arena_free(&memory);
  return code;
}

/* What the plugin itself serialized: jaxlib (from 0.9.2 on) puts a message of the name `pjrt_ifrt`, and its length as a varint,
 * in front. */
static bytes without_ifrt(bytes blob) {
  static const char mark[] = "pjrt_ifrt";
  uint64_t size = 0;
  size_t at = 0, i;
  bytes rest;
  while (at < blob.size && at < 9) {
    size |= (uint64_t)(blob.at[at] & 127) << 7 * at;
    if (blob.at[at++] < 128) break;
  }
  if (size > blob.size - at) return blob;
  for (i = 0; i + sizeof mark - 1 <= size && i < 64; i++)
    if (!memcmp(blob.at + at + i, mark, sizeof mark - 1)) {
      rest.at = blob.at + at + size, rest.size = blob.size - at - (size_t)size;
      return rest;
    }
  return blob;
}

/* Executables are compiled for the device with id 0; for another one they are told so. */
static aot_code deserialize(const aot_runtime *r, bytes blob, const char *where, PJRT_LoadedExecutable **out,
                            aot_error *error) {
  text options = {NULL, 0, 0, false};
  const json none = {NULL, NULL};
  aot_code code;
  ARGS(PJRT_Executable_DeserializeAndLoad, a);
  blob = without_ifrt(blob);
  if (r->device_id) compile_options(&options, r, NULL, none);
  a.overridden_serialized_compile_options = options.data, a.overridden_serialized_compile_options_size = options.size;
  a.client = r->client, a.serialized_executable = (const char *)blob.at, a.serialized_executable_size = blob.size;
  code = pjrt_failed(r->api, r->api->PJRT_Executable_DeserializeAndLoad(&a), AOT_ERROR_HOST, where, "rejected by the plugin",
                     error);
  free(options.data);
  *out = code ? NULL : a.loaded_executable;
  return code;
}

/* ---- what it returns ---- */

static bool same_outputs(const aot_signature *s, const PJRT_Executable_OutputElementTypes_Args *types,
                         const PJRT_Executable_OutputDimensions_Args *dims) {
  const int64_t *d = dims->dims;
  size_t i;
  if (types->num_output_types != s->num_outputs || dims->num_outputs != s->num_outputs) return false;
  for (i = 0; i < s->num_outputs; i++) {
    const aot_leaf *leaf = &s->outputs[i];
    if (types->output_types[i] != dtype_rows[leaf->dtype].pjrt || dims->dim_sizes[i] != leaf->rank) return false;
    if (leaf->rank && memcmp(d, leaf->dims, leaf->rank * sizeof *d)) return false;
    d += leaf->rank;
  }
  return true;
}

/* A wrong manifest would make Execute write past the list of outputs, so it is checked once. */
static aot_code check_outputs(const aot_runtime *r, PJRT_LoadedExecutable *loaded, const aot_signature *s, const char *where,
                              aot_error *error) {
  static const char *const doing = "asking for its outputs";
  const PJRT_Api *api = r->api;
  aot_code code;
  ARGS(PJRT_LoadedExecutable_GetExecutable, get);
  ARGS(PJRT_Executable_OutputElementTypes, types);
  ARGS(PJRT_Executable_OutputDimensions, dims);
  ARGS(PJRT_Executable_Destroy, destroy);
  get.loaded_executable = loaded;
  code = pjrt_failed(api, api->PJRT_LoadedExecutable_GetExecutable(&get), AOT_ERROR_PLUGIN, where, doing, error);
  if (code) return code;
  types.executable = dims.executable = destroy.executable = get.executable;
  code = pjrt_failed(api, api->PJRT_Executable_OutputElementTypes(&types), AOT_ERROR_PLUGIN, where, doing, error);
  if (!code) code = pjrt_failed(api, api->PJRT_Executable_OutputDimensions(&dims), AOT_ERROR_PLUGIN, where, doing, error);
  if (!code && !same_outputs(s, &types, &dims))
    code = fail(error, AOT_ERROR_FORMAT, where, AGAIN, "damaged: the executable returns something else than the manifest says");
  pjrt_failed(api, api->PJRT_Executable_Destroy(&destroy), AOT_ERROR_PLUGIN, where, doing, NULL);
  return code;
}

#endif
