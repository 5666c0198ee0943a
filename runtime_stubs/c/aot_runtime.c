/* aot_runtime.c: the loader.  Compile this one file, together with the folders src and third_party next to it:
 *
 *     cc -std=c99 -O2 -c aot_runtime.c        and link with -ldl -lpthread
 */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* POSIX: mmap, st_mtim, realpath, pthread_condattr_setclock */
#endif

#include "aot_runtime.h"

#include "src/call.h"

/* ---- errors and types ---- */

const char *aot_error_text(const aot_error *e, char *buffer, size_t size) {
  snprintf(buffer, size, "%s%s%s%s%s", e->where, *e->where ? ": " : "", e->message, *e->hint ? "\nhint: " : "", e->hint);
  return buffer;
}

static const dtype_row *dtype_row_of(aot_dtype dtype) {
  return &dtype_rows[dtype > AOT_INVALID && dtype < AOT_NUM_DTYPES ? dtype : AOT_INVALID];
}

const char *aot_dtype_name(aot_dtype dtype) { return dtype_row_of(dtype)->name; }

size_t aot_dtype_size(aot_dtype dtype) { return dtype_row_of(dtype)->size; }

void aot_free(void *text) { free(text); }

/* ---- runtimes ---- */

static aot_code find_device(aot_runtime *r, size_t index, aot_error *error) {
  aot_code code;
  ARGS(PJRT_Client_AddressableDevices, devices);
  ARGS(PJRT_Client_PlatformName, name);
  ARGS(PJRT_Device_GetDescription, description);
  ARGS(PJRT_DeviceDescription_Id, id);
  devices.client = name.client = r->client;
  code = pjrt_failed(r->api, r->api->PJRT_Client_AddressableDevices(&devices), AOT_ERROR_PLUGIN, r->plugin,
                     "asking for its devices", error);
  if (!code)
    code =
        pjrt_failed(r->api, r->api->PJRT_Client_PlatformName(&name), AOT_ERROR_PLUGIN, r->plugin, "asking for its name", error);
  if (code) return code;
  r->num_devices = devices.num_addressable_devices;
  if (index >= r->num_devices)
    return fail(error, AOT_ERROR_PLUGIN, r->plugin, "", "has %zu devices, device %zu was asked for", r->num_devices, index);
  r->device = description.device = devices.addressable_devices[index];
  code = pjrt_failed(r->api, r->api->PJRT_Device_GetDescription(&description), AOT_ERROR_PLUGIN, r->plugin,
                     "asking for its devices", error);
  id.device_description = description.device_description;
  if (!code)
    code = pjrt_failed(r->api, r->api->PJRT_DeviceDescription_Id(&id), AOT_ERROR_PLUGIN, r->plugin, "asking for its devices",
                       error);
  if (code) return code;
  r->device_id = id.id;
  r->platform = arena_copy(&r->memory, name.platform_name, name.platform_name_size);
  if (!r->platform) return no_memory(error);
  r->host_memory = !strcmp(r->platform, "cpu");
  return AOT_OK;
}

/* The path as dlopen and the identity want it: absolute, links resolved. */
static aot_code find_plugin(aot_runtime *r, const aot_runtime_options *o, aot_error *error) {
  static const char *const hint = "options.plugin is the path of a PJRT plugin's shared library";
  char *path = o->plugin ? realpath(o->plugin, NULL) : NULL;
  if (!path)
    return fail(error, AOT_ERROR_FILE, o->plugin ? o->plugin : "", hint, o->plugin ? "no such plugin" : "no plugin was given");
  r->plugin = arena_copy(&r->memory, path, strlen(path));
  free(path);
  if (o->identity_cache) r->identity_cache = arena_copy(&r->memory, o->identity_cache, strlen(o->identity_cache));
  return r->plugin && (r->identity_cache || !o->identity_cache) ? AOT_OK : no_memory(error);
}

aot_code aot_runtime_open(const aot_runtime_options *options, aot_runtime **out, aot_error *error) {
  aot_runtime *r = calloc(1, sizeof *r);
  aot_code code;
  *out = NULL;
  if (!r) return no_memory(error);
  pthread_mutex_init(&r->lock, NULL);
  code = find_plugin(r, options, error);
  if (!code) code = open_plugin(options, r->plugin, &r->api, &r->client, error);
  if (!code) code = find_device(r, options->device, error);
  if (code)
    aot_runtime_close(r);
  else
    *out = r;
  return code;
}

void aot_runtime_close(aot_runtime *r) {
  if (!r) return;
  free_client(r->api, r->client);
  pthread_mutex_destroy(&r->lock);
  arena_free(&r->memory);
  free(r);
}

const char *aot_runtime_platform(const aot_runtime *r) { return r->platform; }

void aot_runtime_api_version(const aot_runtime *r, int *major, int *minor) {
  *major = r->api->pjrt_api_version.major_version;
  *minor = r->api->pjrt_api_version.minor_version;
}

size_t aot_runtime_num_devices(const aot_runtime *r) { return r->num_devices; }

/* ---- artifacts ---- */

static void release_file(bytes file, int fd) {
  if (fd < 0) return;
  unmap_file(file);
  close(fd);
}

/* fd: of the mapped file, which is the artifact's from now on, or -1 for memory of the caller's. */
static aot_code open_artifact(const char *path, bytes file, int fd, aot_runtime *runtime, unsigned flags,
                              const char *weights, aot_artifact **out, aot_error *error) {
  aot_artifact *a = calloc(1, sizeof *a);
  aot_code code = AOT_OK;
  if (!a) {
    release_file(file, fd);
    return no_memory(error);
  }
  pthread_mutex_init(&a->lock, NULL);
  a->archive.file = file, a->archive.fd = fd, a->runtime = runtime, a->strict = flags & AOT_STRICT;
  a->archive.path = arena_copy(&a->memory, path, strlen(path));
  if (weights) a->weights_path = arena_copy(&a->memory, weights, strlen(weights));
  if (!a->archive.path || (weights && !a->weights_path)) code = no_memory(error);
  if (!code) code = read_directory(&a->archive, &a->memory, error);
  if (!code) code = read_manifest(a, error);
  if (!code && weights && !json_get(a->manifest, "external").at)
    code = fail(error, AOT_ERROR_FORMAT, path, "", "its weights are not in a separate file, so others cannot be given");
  if (code)
    aot_artifact_close(a);
  else
    *out = a;
  return code;
}

aot_code aot_artifact_open(const char *path, aot_runtime *runtime, unsigned flags, const char *weights, aot_artifact **out,
                           aot_error *error) {
  bytes file = {NULL, 0};
  int fd = -1;
  const aot_code code = map_file(path, &file, &fd, error);
  *out = NULL;
  return code ? code : open_artifact(path, file, fd, runtime, flags, weights, out, error);
}

aot_code aot_artifact_open_memory(const void *data, size_t size, const char *name, aot_runtime *runtime, unsigned flags,
                                  const char *weights, aot_artifact **out, aot_error *error) {
  const bytes file = {data, size};
  *out = NULL;
  if (!size) return fail(error, AOT_ERROR_FORMAT, name, AGAIN, "the file is empty");
  return open_artifact(name, file, -1, runtime, flags, weights, out, error);
}

void aot_artifact_close(aot_artifact *a) {
  size_t i;
  if (!a) return;
  for (i = 0; i < a->num_functions; i++) {
    if (a->runtime) pjrt_free_executable(a->runtime->api, a->functions[i].executable);
    free(a->functions[i].reason.data);
  }
  for (i = 0; a->weights_read && i < a->weights.count; i++) {
    if (!a->weight_buffers[i]) continue;
    pjrt_free_buffer(a->runtime->api, a->weight_buffers[i]);
    pjrt_await(a->runtime->api, a->weight_events[i], "", "", NULL);
  }
  release_file(a->archive.file, a->archive.fd);
  unmap_file(a->mapped_weights);
  pthread_mutex_destroy(&a->lock);
  arena_free(&a->memory);
  free(a);
}

size_t aot_artifact_num_functions(const aot_artifact *a) { return a->num_functions; }

const char *aot_artifact_function_name(const aot_artifact *a, size_t index) {
  return index < a->num_functions ? a->functions[index].signature.name : NULL;
}

aot_code aot_artifact_verify(aot_artifact *a, aot_error *error) {
  json_iter it = json_each(a->members);
  json key, value;
  aot_code code = AOT_OK;
  pthread_mutex_lock(&a->lock);
  while (!code && json_next(&it, &key, &value)) {
    arena memory = {NULL};
    const char *name = json_string(&memory, key);
    bytes data;
    code = name ? verified_member(&a->archive, a->members, name, &data, error)
                : bad_manifest(a, "", "the name of a member", error);
    arena_free(&memory);
  }
  pthread_mutex_unlock(&a->lock);
  return code;
}

aot_code aot_artifact_signature(aot_artifact *a, const char *name, const aot_signature **signature, aot_error *error) {
  aot_function *f = NULL;
  aot_code code = find_function(a, name, &f, error);
  if (code) return code;
  pthread_mutex_lock(&a->lock);
  code = describe(f, error);
  pthread_mutex_unlock(&a->lock);
  *signature = &f->signature;
  return code;
}

/* ---- explanations and records ---- */

static void explain_function(aot_artifact *a, const aot_function *f, text *t) {
  json_iter it = json_each(json_get(f->spec, "executables"));
  json key, exe;
  bool used = false;
  add_signature(t, f);
  text_add(t, "\n");
  while (json_next(&it, &key, &exe)) {
    text why = {NULL, 0, 0, false};
    const bool fits = !misfit(a, exe, &why);
    text_add(t, "  ");
    add_string(t, json_get(exe, "target"));
    text_add(t, ": %s%s\n", fits ? "fits this host" : why.data ? why.data : "?", fits && !used ? ": used" : "");
    used |= fits;
    free(why.data);
  }
  if (!used && json_get(f->spec, "program").at)
    text_add(t, "  stablehlo: %s\n", a->strict ? "refused under AOT_STRICT" : "compiled here when the function is loaded");
}

aot_code aot_artifact_explain(aot_artifact *a, char **out, aot_error *error) {
  text t = {NULL, 0, 0, false};
  size_t i;
  pthread_mutex_lock(&a->lock);
  text_put(&t, a->archive.path, strlen(a->archive.path));
  text_add(&t, ": written by ");
  add_string(&t, json_get(a->manifest, "producer"));
  text_add(&t, "\n");
  for (i = 0; i < a->num_functions; i++) explain_function(a, &a->functions[i], &t);
  pthread_mutex_unlock(&a->lock);
  *out = t.failed ? NULL : t.data;
  if (!t.failed) return AOT_OK;
  free(t.data);
  return no_memory(error);
}

/* The arrays `in.0`, `in.1`, ... and `out.0`, ... of a golden member, which must have the types of the signature. */
static aot_code read_golden(aot_function *f, const char *name, aot_error *error) {
  aot_artifact *a = f->artifact;
  const aot_signature *s = &f->signature;
  const place p = at_member(a->archive.path, name, strlen(name));
  aot_array *all = arena_new(&a->memory, s->num_inputs + s->num_outputs + 1, sizeof *all);
  tensors found;
  bytes data;
  size_t i;
  aot_code code = all ? verified_member(&a->archive, a->members, name, &data, error) : no_memory(error);
  if (!code) code = read_tensors(&a->memory, data, p.text, &found, error);
  for (i = 0; !code && i < s->num_inputs + s->num_outputs; i++) {
    const bool in = i < s->num_inputs;
    const aot_leaf *leaf = in ? &s->inputs[i] : &s->outputs[i - s->num_inputs];
    const aot_array *array;
    char key[32];
    snprintf(key, sizeof key, "%s.%zu", in ? "in" : "out", in ? i : i - s->num_inputs);
    array = find_tensor(&found, key);
    if (!array || check_input(leaf, array, NULL))
      code = fail(error, AOT_ERROR_FORMAT, p.text, AGAIN, "damaged: %s is missing or has another type", key);
    else
      all[i] = *array;
  }
  if (!code) f->golden = all;
  return code;
}

aot_code aot_artifact_golden(aot_artifact *a, const char *name, const aot_array **inputs, const aot_array **outputs,
                             aot_error *error) {
  aot_function *f = NULL;
  const char *member_name;
  aot_code code = find_function(a, name, &f, error);
  if (code) return code;
  pthread_mutex_lock(&a->lock);
  code = describe(f, error);
  if (!code && !f->golden) {
    member_name = json_string(&a->memory, json_get(f->spec, "golden"));
    code = member_name ? read_golden(f, member_name, error)
                       : fail(error, AOT_ERROR_NAME, name, "build it without --no-golden", "no result was recorded");
  }
  pthread_mutex_unlock(&a->lock);
  if (!code) *inputs = f->golden, *outputs = f->golden + f->signature.num_inputs;
  return code;
}

/* ---- functions ---- */

aot_code aot_artifact_function(aot_artifact *a, const char *name, const aot_function **function, aot_error *error) {
  aot_function *f = NULL;
  aot_code code = find_function(a, name, &f, error);
  *function = NULL;
  if (code) return code;
  pthread_mutex_lock(&a->lock);
  code = load_function(f, error);
  pthread_mutex_unlock(&a->lock);
  if (!code) *function = f;
  return code;
}

const aot_signature *aot_function_signature(const aot_function *f) { return &f->signature; }

const char *aot_function_target(const aot_function *f) { return f->target; }

const char *aot_function_reason(const aot_function *f) { return f->reason.size ? f->reason.data : ""; }
