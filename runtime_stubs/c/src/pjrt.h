/* The calls of the PJRT C API that the loader makes, and the client behind an `aot_runtime`. */
#ifndef AOT_PJRT_H
#define AOT_PJRT_H

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include "host.h"
#include "tensors.h"

struct aot_runtime {
  arena memory;
  const PJRT_Api *api;
  PJRT_Client *client;
  PJRT_Device *device;
  int device_id;
  size_t num_devices;
  bool host_memory; /* the device's memory is the host's */
  char *plugin, *platform, *identity_cache;
  pthread_mutex_t lock; /* guards `sha256` */
  char sha256[65];      /* of the plugin's file, "" until it is wanted */
};

/* `ARGS(PJRT_Event_Await, a);` declares a zeroed PJRT_Event_Await_Args `a`. */
#define ARGS(call, name) \
  call##_Args name; \
  memset(&name, 0, sizeof name); \
  name.struct_size = call##_Args_STRUCT_SIZE

/* Turn a PJRT error into ours and destroy it. */
static aot_code pjrt_failed(const PJRT_Api *api, PJRT_Error *e, aot_code code, const char *where, const char *doing,
                            aot_error *error) {
  const char *end;
  ARGS(PJRT_Error_Message, m);
  ARGS(PJRT_Error_Destroy, d);
  if (e == NULL) return AOT_OK;
  m.error = d.error = e;
  api->PJRT_Error_Message(&m);
  end = m.message_size ? memchr(m.message, '\n', m.message_size) : NULL;
  fail(error, code, where, "", "%s: %.*s", doing, (int)(end ? (size_t)(end - m.message) : m.message_size), m.message);
  api->PJRT_Error_Destroy(&d);
  return code;
}

/* Wait for an event and destroy it; NULL is an event that has happened. */
static aot_code pjrt_await(const PJRT_Api *api, PJRT_Event *event, const char *where, const char *doing, aot_error *error) {
  aot_code code;
  ARGS(PJRT_Event_Await, a);
  ARGS(PJRT_Event_Destroy, d);
  if (event == NULL) return AOT_OK;
  a.event = d.event = event;
  code = pjrt_failed(api, api->PJRT_Event_Await(&a), AOT_ERROR_PLUGIN, where, doing, error);
  pjrt_failed(api, api->PJRT_Event_Destroy(&d), AOT_ERROR_PLUGIN, where, doing, NULL);
  return code;
}

static void pjrt_free_buffer(const PJRT_Api *api, PJRT_Buffer *buffer) {
  ARGS(PJRT_Buffer_Destroy, d);
  d.buffer = buffer;
  if (buffer) pjrt_failed(api, api->PJRT_Buffer_Destroy(&d), AOT_ERROR_PLUGIN, "", "", NULL);
}

static void pjrt_free_executable(const PJRT_Api *api, PJRT_LoadedExecutable *executable) {
  ARGS(PJRT_LoadedExecutable_Destroy, d);
  d.executable = executable;
  if (executable) pjrt_failed(api, api->PJRT_LoadedExecutable_Destroy(&d), AOT_ERROR_PLUGIN, "", "", NULL);
}

/* Host array -> device buffer.  `data` must stay until `*done` has happened, and `*done` may wait for the buffer's end. */
static aot_code pjrt_put(const aot_runtime *r, const void *data, aot_dtype dtype, size_t rank, const int64_t *dims,
                         bool in_place, const char *where, PJRT_Buffer **buffer, PJRT_Event **done, aot_error *error) {
  aot_code code;
  ARGS(PJRT_Client_BufferFromHostBuffer, a);
  a.client = r->client, a.device = r->device, a.data = data, a.type = dtype_rows[dtype].pjrt, a.dims = dims, a.num_dims = rank;
  a.host_buffer_semantics =
      in_place ? PJRT_HostBufferSemantics_kImmutableZeroCopy : PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  code = pjrt_failed(r->api, r->api->PJRT_Client_BufferFromHostBuffer(&a), AOT_ERROR_PLUGIN, where, "passing it to the device",
                     error);
  *buffer = code ? NULL : a.buffer, *done = code ? NULL : a.done_with_host_buffer;
  return code;
}

/* ---- loading a plugin, in a thread of its own because it can hang ---- */

typedef struct opening {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool done, abandoned;
  arena memory;
  const char *plugin;
  PJRT_NamedValue *options;
  size_t num_options;
  const PJRT_Api *api;
  PJRT_Client *client;
  aot_code code;
  aot_error error;
} opening;

static void free_opening(opening *o) {
  pthread_cond_destroy(&o->changed);
  pthread_mutex_destroy(&o->lock);
  arena_free(&o->memory);
  free(o);
}

static aot_code load_plugin(opening *o) {
  static const char *const needed = "use a plugin of PJRT C API 0.54 or a later 0.x";
  const PJRT_Api *(*get_api)(void) = NULL;
  void *symbol, *library = dlopen(o->plugin, RTLD_NOW | RTLD_LOCAL); /* never closed: XLA leaves threads and handlers behind */
  if (!library) return fail(&o->error, AOT_ERROR_PLUGIN, o->plugin, "", "cannot be loaded: %s", dlerror());
  symbol = dlsym(library, "GetPjrtApi");
  memcpy(&get_api, &symbol, sizeof symbol);
  if (!symbol) return fail(&o->error, AOT_ERROR_PLUGIN, o->plugin, "", "not a PJRT plugin: it has no GetPjrtApi");
  o->api = get_api();
  if (!o->api || o->api->struct_size < offsetof(PJRT_Api, PJRT_Client_CreateViewOfDeviceBuffer) ||
      o->api->pjrt_api_version.major_version != PJRT_API_MAJOR)
    return fail(&o->error, AOT_ERROR_PLUGIN, o->plugin, needed, "its PJRT C API %d.%d is not supported",
                o->api ? o->api->pjrt_api_version.major_version : 0, o->api ? o->api->pjrt_api_version.minor_version : 0);
  return AOT_OK;
}

static aot_code make_client(opening *o, const PJRT_NamedValue *options, size_t count) {
  ARGS(PJRT_Client_Create, a);
  a.create_options = options, a.num_options = count;
  o->code = pjrt_failed(o->api, o->api->PJRT_Client_Create(&a), AOT_ERROR_PLUGIN, o->plugin, "cannot make a client", &o->error);
  if (!o->code) o->client = a.client;
  return o->code;
}

static void free_client(const PJRT_Api *api, PJRT_Client *client) {
  ARGS(PJRT_Client_Destroy, d);
  d.client = client;
  if (client) pjrt_failed(api, api->PJRT_Client_Destroy(&d), AOT_ERROR_PLUGIN, "", "", NULL);
}

/* Results are waited for, so a dispatch thread would only add latency; plugins without this option refuse it. */
static aot_code make_default_client(opening *o) {
  PJRT_NamedValue v;
  memset(&v, 0, sizeof v);
  v.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  v.name = "asynchronous", v.name_size = strlen(v.name), v.type = PJRT_NamedValue_kBool, v.bool_value = false, v.value_size = 1;
  return make_client(o, &v, 1) ? make_client(o, NULL, 0) : AOT_OK;
}

static void *open_in_thread(void *argument) {
  opening *o = argument;
  bool abandoned;
  o->code = load_plugin(o);
  if (!o->code) {
    ARGS(PJRT_Plugin_Initialize, a);
    o->code = pjrt_failed(o->api, o->api->PJRT_Plugin_Initialize(&a), AOT_ERROR_PLUGIN, o->plugin, "cannot be initialized",
                          &o->error);
  }
  if (!o->code) o->code = o->options ? make_client(o, o->options, o->num_options) : make_default_client(o);
  pthread_mutex_lock(&o->lock);
  o->done = true, abandoned = o->abandoned;
  pthread_cond_signal(&o->changed);
  pthread_mutex_unlock(&o->lock);
  if (abandoned) {
    free_client(o->api, o->client);
    free_opening(o);
  }
  return NULL;
}

/* The caller's create options as PJRT's, copied: a thread that hangs may read them after the caller has given up. */
static bool copy_options(opening *o, const aot_runtime_options *given) {
  size_t i;
  if (!given->create_options) return true;
  o->num_options = given->num_create_options;
  o->options = arena_new(&o->memory, o->num_options + 1, sizeof *o->options);
  for (i = 0; o->options && i < o->num_options; i++) {
    const aot_option *from = &given->create_options[i];
    PJRT_NamedValue *v = &o->options[i];
    v->struct_size = PJRT_NamedValue_STRUCT_SIZE, v->value_size = 1;
    if (!(v->name = arena_copy(&o->memory, from->name, strlen(from->name)))) return false;
    v->name_size = strlen(v->name);
    switch (from->type) {
      case AOT_OPTION_INT: v->type = PJRT_NamedValue_kInt64, v->int64_value = from->integer; break;
      case AOT_OPTION_BOOL: v->type = PJRT_NamedValue_kBool, v->bool_value = from->integer != 0; break;
      case AOT_OPTION_FLOAT: v->type = PJRT_NamedValue_kFloat, v->float_value = from->real; break;
      default:
        v->type = PJRT_NamedValue_kString, v->value_size = strlen(from->string);
        if (!(v->string_value = arena_copy(&o->memory, from->string, v->value_size))) return false;
    }
  }
  return o->options != NULL;
}

static opening *new_opening(const aot_runtime_options *options, const char *plugin) {
  opening *o = calloc(1, sizeof *o);
  pthread_condattr_t monotonic;
  if (!o) return NULL;
  pthread_mutex_init(&o->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&o->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  o->plugin = arena_copy(&o->memory, plugin, strlen(plugin));
  if (o->plugin && copy_options(o, options)) return o;
  free_opening(o);
  return NULL;
}

/* Wait for the thread; false when time ran out. */
static bool wait_for(opening *o, unsigned timeout_ms) {
  struct timespec until;
  bool done;
  int expired = 0;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += timeout_ms / 1000;
  until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_mutex_lock(&o->lock);
  while (!o->done && !expired) expired = pthread_cond_timedwait(&o->changed, &o->lock, &until);
  done = o->done;
  o->abandoned = !done;
  pthread_mutex_unlock(&o->lock);
  return done;
}

/* Load a plugin and make its client within a time. */
static aot_code open_plugin(const aot_runtime_options *options, const char *plugin, const PJRT_Api **api, PJRT_Client **client,
                            aot_error *error) {
  static const char *const hint = "libtpu asks for metadata for minutes unless TPU_SKIP_MDS_QUERY=1; end this process";
  const unsigned timeout = options->timeout_ms ? options->timeout_ms : 60000;
  opening *o = new_opening(options, plugin);
  pthread_t thread;
  aot_code code;
  if (!o) return no_memory(error);
  if (pthread_create(&thread, NULL, open_in_thread, o)) {
    free_opening(o);
    return fail(error, AOT_ERROR_PLUGIN, plugin, "", "cannot start a thread");
  }
  if (!wait_for(o, timeout)) {
    pthread_detach(thread);
    return fail(error, AOT_ERROR_TIMEOUT, plugin, hint, "did not make a client within %u ms", timeout);
  }
  pthread_join(thread, NULL);
  code = o->code, *api = o->api, *client = o->client;
  if (code && error) *error = o->error;
  free_opening(o);
  return code;
}

#endif
