/* Loading a function: which executable, its parameters and weights. */
#ifndef AOT_FUNCTION_H
#define AOT_FUNCTION_H

#include "manifest.h"

/* ---- which executable ---- */

static aot_code runtime_sha256(aot_runtime *r, char hex[65], aot_error *error) {
  aot_code code = AOT_OK;
  pthread_mutex_lock(&r->lock);
  if (!*r->sha256) code = plugin_identity(r->plugin, r->identity_cache, r->sha256, error);
  memcpy(hex, r->sha256, 65);
  pthread_mutex_unlock(&r->lock);
  return code;
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static bool plugin_misfit(aot_runtime *r, const char *sha256, text *why) {
  char hex[65];
  aot_error error;
  if (runtime_sha256(r, hex, &error)) {
    text_add(why, "%s: %s", error.where, error.message);
    return true;
  }
  if (!strcmp(sha256, hex)) return false;
  text_add(why, "built with the plugin of sha256 %.12s..., %.80s has %.12s...", sha256, base_name(r->plugin), hex);
  return true;
}

/* Why an executable must not be tried here, appended to `why`; false when it fits.  The cheap checks come first. */
static bool misfit(const aot_artifact *a, json exe, text *why) {
  arena memory = {NULL};
  const char *machine = json_string(&memory, json_get(exe, "machine")), *plugin = json_string(&memory, json_get(exe, "plugin"));
  bool no = true;
  if (!plugin)
    text_add(why, "made for jaxlib and its Python loader, not for a PJRT plugin");
  else if (!a->runtime)
    text_add(why, "no plugin was loaded");
  else
    no = (machine && *machine && cpu_misfit(machine, json_get(exe, "cpu_features"), why)) ||
         plugin_misfit(a->runtime, plugin, why);
  arena_free(&memory);
  return no;
}

static const char *target_of(aot_artifact *a, json exe) {
  const char *target = json_string(&a->memory, json_get(exe, "target"));
  return target ? target : "?";
}

/* The first executable that fits and that the plugin takes; `f->executable` stays NULL when there is none. */
static aot_code try_executables(aot_function *f, aot_error *error) {
  aot_artifact *a = f->artifact;
  json_iter it = json_each(json_get(f->spec, "executables"));
  json key, exe;
  while (!f->executable && json_next(&it, &key, &exe)) {
    text why = {NULL, 0, 0, false};
    const char *target = target_of(a, exe), *name = json_string(&a->memory, json_get(exe, "member"));
    if (!misfit(a, exe, &why)) {
      bytes blob;
      aot_error rejected;
      aot_code code = name ? verified_member(&a->archive, a->members, name, &blob, error)
                           : bad_manifest(a, f->signature.name, "an executable without member", error);
      if (code) {
        free(why.data);
        return code;
      }
      if (deserialize(a->runtime, blob, name, &f->executable, &rejected))
        text_add(&why, "%s", rejected.message);
      else
        f->target = target;
    }
    if (!f->executable) text_add(&f->reason, "%s%s: %s", f->reason.size ? "; " : "", target, why.data ? why.data : "?");
    free(why.data);
  }
  return AOT_OK;
}

/* A call that no plugin can make, or NULL: kernels that come with jaxlib. */
static const char *foreign_call(aot_artifact *a, const aot_function *f) {
  json_iter it = json_each(json_get(f->spec, "custom_calls"));
  json key, value;
  while (json_next(&it, &key, &value)) {
    const char *name = json_string(&a->memory, value);
    if (name && !strncmp(name, "lapack_", 7)) return name;
  }
  return NULL;
}

static aot_code compile_here(aot_function *f, const char *where, aot_error *error) {
  static const char *const hint = "aot compile --target pjrt:PLUGIN makes an executable for a plugin";
  aot_artifact *a = f->artifact;
  const json program = json_get(f->spec, "program");
  const char *why = f->reason.size ? f->reason.data : "it holds no executable", *call = foreign_call(a, f), *name;
  bytes data;
  aot_code code;
  if (a->strict || !program.at) return fail(error, AOT_ERROR_HOST, where, hint, "no executable for this host (%.400s)", why);
  if (call)
    return fail(error, AOT_ERROR_HOST, where, "use the Python loader for it, or rewrite it without factorizations",
                "calls %.60s, a LAPACK kernel of jaxlib that plugins do not have", call);
  name = json_string(&a->memory, program);
  if (!name) return bad_manifest(a, f->signature.name, "program", error);
  code = verified_member(&a->archive, a->members, name, &data, error);
  if (!code) code = compile_program(a->runtime, data, json_get(f->spec, "xla_flags"), where, &f->executable, error);
  f->target = "stablehlo";
  return code;
}

/* ---- weights ---- */

/* The weights in a file of their own, which must have the types that the programs take. */
static aot_code read_separate(aot_artifact *a, json external, aot_error *error) {
  json_iter it = json_each(json_get(external, "arrays"));
  json key, value;
  const char *file = json_string(&a->memory, json_get(external, "file")), *slash = strrchr(a->archive.path, '/');
  text path = {NULL, 0, 0, false};
  tensors found;
  aot_code code;
  if (!file || !*file || strchr(file, '/')) return bad_manifest(a, "", "external file", error);
  if (a->weights_path)
    text_put(&path, a->weights_path, strlen(a->weights_path));
  else {
    if (slash) text_put(&path, a->archive.path, (size_t)(slash + 1 - a->archive.path));
    text_put(&path, file, strlen(file));
  }
  if (path.failed) return no_memory(error);
  code = map_file(path.data, &a->mapped_weights, NULL, error);
  if (!code) code = read_tensors(&a->memory, a->mapped_weights, path.data, &found, error);
  while (!code && json_next(&it, &key, &value)) {
    const char *name = json_string(&a->memory, key);
    const aot_array *array = name ? find_tensor(&found, name) : NULL;
    size_t rank, size;
    const int64_t *dims;
    const aot_dtype dtype = dtype_named(json_get(value, "dtype"));
    if (dtype == AOT_INVALID || !read_shape(&a->memory, json_get(value, "shape"), dtype_rows[dtype].size, &rank, &dims, &size))
      code = bad_manifest(a, "", "external arrays", error);
    else if (!array || array->dtype != dtype || array->rank != rank || (rank && memcmp(array->dims, dims, rank * sizeof *dims)))
      code = fail(error, AOT_ERROR_FORMAT, path.data, "", "weight '%.100s': %s", name ? name : "?",
                  array ? "another type than the programs take" : "it is missing");
    else
      a->weights.items[a->weights.count].name = key, a->weights.items[a->weights.count++].array = *array;
  }
  free(path.data);
  return code;
}

/* Find every weight, once. */
static aot_code read_weights(aot_artifact *a, aot_error *error) {
  const json external = json_get(a->manifest, "external");
  const place p = at_member(a->archive.path, "weights", 7);
  const size_t more = json_count(json_get(external, "arrays"));
  tensors inside = {NULL, 0};
  bytes data;
  aot_code code = AOT_OK;
  if (a->weights_read) return AOT_OK;
  if (json_get(a->members, "weights").at) {
    code = verified_member(&a->archive, a->members, "weights", &data, error);
    if (!code) code = read_tensors(&a->memory, data, p.text, &inside, error);
  }
  if (code) return code;
  a->weights.count = inside.count;
  a->weights.items = arena_new(&a->memory, inside.count + more + 1, sizeof *a->weights.items);
  if (!a->weights.items) return no_memory(error);
  if (inside.count) memcpy(a->weights.items, inside.items, inside.count * sizeof *inside.items);
  if (json_is(external, '{')) code = read_separate(a, external, error);
  if (code) return code;
  a->weight_buffers = arena_new(&a->memory, a->weights.count + 1, sizeof *a->weight_buffers);
  a->weight_events = arena_new(&a->memory, a->weights.count + 1, sizeof *a->weight_events);
  if (!a->weight_buffers || !a->weight_events) return no_memory(error);
  a->weights_read = true;
  return AOT_OK;
}

/* The device buffer of a weight: made from the mapped file, in place where the device can read it. */
static aot_code weight_buffer(aot_artifact *a, const char *function, json name, PJRT_Buffer **out, aot_error *error) {
  size_t i;
  const char *text = json_string(&a->memory, name);
  aot_code code = read_weights(a, error);
  if (code) return code;
  for (i = 0; i < a->weights.count; i++) {
    const aot_array *w = &a->weights.items[i].array;
    if (!text || !json_equals(a->weights.items[i].name, text, strlen(text))) continue;
    if (!a->weight_buffers[i])
      code = pjrt_put(a->runtime, w->data, w->dtype, w->rank, w->dims, true, text, &a->weight_buffers[i], &a->weight_events[i],
                      error);
    *out = a->weight_buffers[i];
    return code;
  }
  return bad_manifest(a, function, "a parameter names a weight that is not there", error);
}

/* ---- parameters ---- */

/* What each parameter of the program is: a number = that input, a string = that weight. */
static aot_code bind_parameters(aot_function *f, aot_error *error) {
  aot_artifact *a = f->artifact;
  const json list = json_get(f->spec, "parameters");
  const size_t inputs = f->signature.num_inputs;
  json_iter it = json_each(list);
  json key, value;
  size_t seen = 0, i;
  f->num_parameters = json_count(list), f->num_weights = 0;
  f->weights = arena_new(&a->memory, f->num_parameters + 1, sizeof *f->weights);
  f->kept = arena_new(&a->memory, f->num_parameters + 1, sizeof *f->kept);
  f->slots = arena_new(&a->memory, inputs + 1, sizeof *f->slots);
  if (!f->weights || !f->kept || !f->slots) return no_memory(error);
  for (i = 0; i < inputs; i++) f->slots[i] = SIZE_MAX;
  for (i = 0; json_next(&it, &key, &value); i++) {
    uint64_t input;
    if (json_is(value, '"')) {
      const aot_code code = weight_buffer(a, f->signature.name, value, &f->weights[i], error);
      if (code) return code;
      f->kept[f->num_weights++] = (int64_t)i;
    } else if (json_size(value, &input) && input < inputs && f->slots[input] == SIZE_MAX) {
      f->slots[input] = i, seen++;
    } else {
      return bad_manifest(a, f->signature.name, "parameters", error);
    }
  }
  return json_is(list, '[') && seen == inputs ? AOT_OK : bad_manifest(a, f->signature.name, "parameters", error);
}

static aot_code make_layouts(aot_function *f, aot_error *error) {
  aot_artifact *a = f->artifact;
  size_t i, k;
  f->layouts = arena_new(&a->memory, f->signature.num_outputs + 1, sizeof *f->layouts);
  for (i = 0; f->layouts && i < f->signature.num_outputs; i++) {
    const size_t rank = f->signature.outputs[i].rank;
    int64_t *order = arena_new(&a->memory, rank + 1, sizeof *order);
    PJRT_Buffer_MemoryLayout *m = &f->layouts[i];
    if (!order) return no_memory(error);
    for (k = 0; k < rank; k++) order[k] = (int64_t)(rank - 1 - k);
    m->struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE, m->type = PJRT_Buffer_MemoryLayout_Type_Tiled;
    m->tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
    m->tiled.minor_to_major = order, m->tiled.minor_to_major_size = rank;
  }
  return f->layouts ? AOT_OK : no_memory(error);
}

/* A program over several devices needs the shards of every argument, which these calls do not take. */
static aot_code refuse_sharded(const aot_function *f, const char *where, aot_error *error) {
  uint64_t devices;
  if (!json_size(json_get(f->spec, "devices"), &devices) || devices < 2) return AOT_OK;
  return fail(error, AOT_ERROR_HOST, where, "use the Python loader for it", "runs on %llu devices, this loader on one",
              (unsigned long long)devices);
}

/* Make a function ready, once.  The artifact is locked. */
static aot_code load_function(aot_function *f, aot_error *error) {
  aot_artifact *a = f->artifact;
  const place p = at_member(a->archive.path, f->signature.name, strlen(f->signature.name));
  aot_code code;
  if (f->loaded) return AOT_OK;
  if (!a->runtime) return fail(error, AOT_ERROR_PLUGIN, p.text, "give aot_artifact_open a runtime", "no plugin was loaded");
  f->reason.size = 0;
  code = describe(f, error);
  if (!code) code = refuse_sharded(f, p.text, error);
  if (!code) code = bind_parameters(f, error);
  if (!code) code = make_layouts(f, error);
  if (!code) code = try_executables(f, error);
  if (!code && !f->executable) code = compile_here(f, p.text, error);
  if (!code) code = check_outputs(a->runtime, f->executable, &f->signature, p.text, error);
  if (code && f->executable) {
    pjrt_free_executable(a->runtime->api, f->executable);
    f->executable = NULL;
  }
  f->loaded = !code;
  return code;
}

#endif
