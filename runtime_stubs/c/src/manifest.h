/* The manifest: functions with their signatures.  Fields that this loader does not know are passed over. */
#ifndef AOT_MANIFEST_H
#define AOT_MANIFEST_H

#include "executable.h"

struct aot_function {
  struct aot_artifact *artifact;
  json spec;
  bool described, loaded;
  aot_signature signature;
  /* what follows is there once it is loaded */
  PJRT_LoadedExecutable *executable;
  const char *target;
  text reason;
  size_t num_parameters, num_weights;
  PJRT_Buffer **weights;             /* the parameters, with the weights in place and NULL for inputs */
  size_t *slots;                     /* the parameter of every input */
  int64_t *kept;                     /* the parameters that must not be donated: weights */
  PJRT_Buffer_MemoryLayout *layouts; /* row-major, for every output */
  aot_array *golden;                 /* inputs, then outputs, or NULL */
};

struct aot_artifact {
  arena memory;
  pthread_mutex_t lock; /* guards everything below, and what is made on demand in functions */
  archive archive;
  bytes mapped_weights; /* the separate file */
  json manifest, members;
  aot_runtime *runtime;
  bool strict;
  const char *weights_path; /* as given, or NULL */
  aot_function *functions;
  size_t num_functions;
  bool weights_read;
  tensors weights;
  PJRT_Buffer **weight_buffers; /* one for each of them, made when a function needs it */
  PJRT_Event **weight_events;
};

static aot_code bad_manifest(const aot_artifact *a, const char *function, const char *what, aot_error *error) {
  const place p = at_member(a->archive.path, "manifest.json", 13);
  return fail(error, AOT_ERROR_FORMAT, p.text, AGAIN, "damaged: %.80s%s%s", function, *function ? ": " : "", what);
}

static int by_json_name(const void *x, const void *y) {
  const aot_function *a = x, *b = y;
  return strcmp(a->signature.name, b->signature.name);
}

static aot_code list_functions(aot_artifact *a, aot_error *error) {
  const json functions = json_get(a->manifest, "functions");
  json_iter it = json_each(functions);
  json key, value;
  size_t i;
  if (!json_is(functions, '{')) return bad_manifest(a, "", "it has no functions", error);
  a->functions = arena_new(&a->memory, json_count(functions) + 1, sizeof *a->functions);
  if (!a->functions) return no_memory(error);
  while (json_next(&it, &key, &value)) {
    aot_function *f = &a->functions[a->num_functions];
    f->artifact = a, f->spec = value, f->signature.name = json_string(&a->memory, key);
    if (!f->signature.name || !*f->signature.name || !json_is(value, '{'))
      return bad_manifest(a, "", "a function without name or fields", error);
    a->num_functions++;
  }
  qsort(a->functions, a->num_functions, sizeof *a->functions, by_json_name);
  for (i = 1; i < a->num_functions; i++)
    if (!by_json_name(&a->functions[i - 1], &a->functions[i]))
      return bad_manifest(a, a->functions[i].signature.name, "it is there twice", error);
  return AOT_OK;
}

/* Check the manifest as a whole and list the functions. */
static aot_code read_manifest(aot_artifact *a, aot_error *error) {
  const char *path = a->archive.path;
  const member *m = find_member(&a->archive, "manifest.json");
  uint64_t schema;
  if (!m) return fail(error, AOT_ERROR_FORMAT, path, "", "not an .aot artifact (it has no manifest.json)");
  if (crc32_of(m->data.at, m->data.size) != m->crc) return bad_manifest(a, "", "it does not match its checksum", error);
  a->manifest = json_parse((const char *)m->data.at, m->data.size);
  if (!json_is(a->manifest, '{') || !json_size(json_get(a->manifest, "schema"), &schema))
    return bad_manifest(a, "", "it is not JSON with a schema", error);
  if (!json_equals(json_get(a->manifest, "format"), "aot", 3))
    return fail(error, AOT_ERROR_FORMAT, path, "", "not an .aot artifact (another format)");
  if (schema < 1 || schema > AOT_SCHEMA)
    return fail(error, AOT_ERROR_VERSION, path, "use a newer loader",
                "written with manifest schema %llu, this loader reads up to %d", (unsigned long long)schema, AOT_SCHEMA);
  a->members = json_get(a->manifest, "members");
  if (!json_is(a->members, '{')) return bad_manifest(a, "", "it has no members", error);
  return list_functions(a, error);
}

/* ---- signatures ---- */

/* An ENTRY: a random key is described by the array that stands for it. */
static bool read_leaf(arena *memory, json entry, aot_leaf *leaf) {
  const json data = json_get(entry, "data"), array = data.at ? data : entry;
  leaf->name = json_string(memory, json_get(entry, "name"));
  leaf->type = json_string(memory, json_get(entry, "dtype"));
  leaf->dtype = dtype_named(json_get(array, "dtype"));
  leaf->donated = json_is(json_get(entry, "donated"), 't');
  return leaf->name && leaf->type && leaf->dtype != AOT_INVALID &&
         read_shape(memory, json_get(array, "shape"), dtype_rows[leaf->dtype].size, &leaf->rank, &leaf->dims, &leaf->bytes);
}

static aot_code read_leaves(const aot_function *f, const char *side, const aot_leaf **out, size_t *count, aot_error *error) {
  aot_artifact *a = f->artifact;
  const json list = json_get(f->spec, side);
  json_iter it = json_each(list);
  json key, value;
  aot_leaf *leaves;
  size_t n = 0;
  if (!json_is(list, '[')) return bad_manifest(a, f->signature.name, side, error);
  if (!(leaves = arena_new(&a->memory, json_count(list) + 1, sizeof *leaves))) return no_memory(error);
  for (; json_next(&it, &key, &value); n++)
    if (!read_leaf(&a->memory, value, &leaves[n])) {
      const aot_leaf *bad = &leaves[n];
      char what[200];
      snprintf(what, sizeof what, "%s %.80s: dtype %.40s or its shape is not supported by this loader", side,
               bad->name ? bad->name : "?", bad->type ? bad->type : "?");
      return bad_manifest(a, f->signature.name, what, error);
    }
  *out = leaves, *count = n;
  return AOT_OK;
}

/* Fill in the signature, once.  The artifact is locked. */
static aot_code describe(aot_function *f, aot_error *error) {
  aot_signature *s = &f->signature;
  aot_code code;
  if (f->described) return AOT_OK;
  code = read_leaves(f, "inputs", &s->inputs, &s->num_inputs, error);
  if (!code) code = read_leaves(f, "outputs", &s->outputs, &s->num_outputs, error);
  f->described = !code;
  return code;
}

static aot_code find_function(aot_artifact *a, const char *name, aot_function **out, aot_error *error) {
  char have[200] = "";
  size_t i, n = 0;
  for (i = 0; i < a->num_functions; i++) {
    if (!strcmp(a->functions[i].signature.name, name)) {
      *out = &a->functions[i];
      return AOT_OK;
    }
    if (n < sizeof have)
      n += (size_t)snprintf(have + n, sizeof have - n, "%s%s", i ? ", " : "it has: ", a->functions[i].signature.name);
  }
  return fail(error, AOT_ERROR_NAME, a->archive.path, have, "no function '%.100s'", name);
}

/* ---- text ---- */

static void add_string(text *t, json v) { /* as it stands in the manifest */
  if (json_is(v, '"')) text_put(t, v.at + 1, (size_t)(v.end - v.at) - 2);
}

static void add_type(text *t, json entry) { /* f32[8,4] */
  const json name = json_get(entry, "dtype");
  const aot_dtype dtype = dtype_named(name);
  json_iter it = json_each(json_get(entry, "shape"));
  json key, value;
  const char *comma = "";
  if (dtype != AOT_INVALID)
    text_add(t, "%s", dtype_rows[dtype].brief);
  else
    add_string(t, name);
  text_add(t, "[");
  for (; json_next(&it, &key, &value); comma = ",") {
    text_add(t, "%s", comma);
    text_put(t, value.at, (size_t)(value.end - value.at));
  }
  text_add(t, "]");
}

static void add_signature(text *t, const aot_function *f) { /* mlp(params, x) -> f32[8,4] */
  json_iter it = json_each(json_get(f->spec, "arguments"));
  json key, value;
  const char *comma = "";
  text_add(t, "%s(", f->signature.name);
  for (; json_next(&it, &key, &value); comma = ", ") {
    text_add(t, "%s", comma);
    add_string(t, json_get(value, "name"));
  }
  text_add(t, ") -> ");
  it = json_each(json_get(f->spec, "outputs"));
  if (!json_count(json_get(f->spec, "outputs"))) text_add(t, "None");
  for (comma = ""; json_next(&it, &key, &value); comma = ", ") {
    text_add(t, "%s", comma);
    add_type(t, value);
  }
}

#endif
