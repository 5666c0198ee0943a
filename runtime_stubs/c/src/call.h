/* Calling a function: arguments in, execute, results out. */
#ifndef AOT_CALL_H
#define AOT_CALL_H

#include "function.h"

enum { CALL_ON_STACK = 48 }; /* arguments and results of a call that needs no memory of its own */

typedef struct call {
  const aot_function *f;
  const PJRT_Api *api;
  PJRT_Buffer **arguments, **results; /* one for each parameter and output */
  PJRT_Event **events;                /* of inputs, then of outputs */
  size_t num_inputs, num_results;     /* how many of them exist */
} call;

static void describe_array(const aot_array *a, char *out, size_t size) {
  const int known = a->dtype > AOT_INVALID && a->dtype < AOT_NUM_DTYPES;
  size_t i, n = (size_t)snprintf(out, size, "%s[", known ? dtype_rows[a->dtype].brief : "an unknown dtype");
  if (a->rank && !a->dims) n += (size_t)snprintf(out + n, size - n, "dims missing");
  for (i = 0; a->dims && i < a->rank && n < size; i++)
    n += (size_t)snprintf(out + n, size - n, "%s%lld", i ? "," : "", (long long)a->dims[i]);
  if (n < size) snprintf(out + n, size - n, "]");
}

static aot_code check_input(const aot_leaf *leaf, const aot_array *given, aot_error *error) {
  char want[100], got[100];
  aot_array expected;
  if (given->dtype == leaf->dtype && given->rank == leaf->rank &&
      (!leaf->rank || (given->dims && !memcmp(given->dims, leaf->dims, leaf->rank * sizeof *leaf->dims))) &&
      given->bytes == leaf->bytes && (given->data || !leaf->bytes))
    return AOT_OK;
  expected.dtype = leaf->dtype, expected.rank = leaf->rank, expected.dims = leaf->dims;
  describe_array(&expected, want, sizeof want);
  describe_array(given, got, sizeof got);
  if (strcmp(want, got)) return fail(error, AOT_ERROR_INPUT, leaf->name, "", "expected %s, got %s", want, got);
  return fail(error, AOT_ERROR_INPUT, leaf->name, "", "%s has %zu bytes of data, got %zu", want, leaf->bytes,
              given->data ? given->bytes : 0);
}

static aot_code check_call(const aot_function *f, const aot_array *inputs, size_t n, const aot_array *outputs, size_t m,
                           aot_error *error) {
  const aot_signature *s = &f->signature;
  size_t i;
  aot_code code = AOT_OK;
  if (n != s->num_inputs || m != s->num_outputs)
    return fail(error, AOT_ERROR_INPUT, s->name, "", "takes %zu arrays and returns %zu, got %zu and %zu", s->num_inputs,
                s->num_outputs, n, m);
  for (i = 0; i < n && !code; i++) code = check_input(&s->inputs[i], &inputs[i], error);
  for (i = 0; i < m && !code; i++)
    if (outputs[i].data && outputs[i].bytes < s->outputs[i].bytes)
      code = fail(error, AOT_ERROR_INPUT, s->outputs[i].name, "", "needs room for %zu bytes, got %zu", s->outputs[i].bytes,
                  outputs[i].bytes);
  return code;
}

/* Empty arrays have no data to point to, but plugins want an address. */
static const char nothing[64];

static aot_code put_inputs(call *c, const aot_array *inputs, aot_error *error) {
  const aot_function *f = c->f;
  size_t i;
  for (i = 0; i < f->signature.num_inputs; i++) {
    const aot_leaf *leaf = &f->signature.inputs[i];
    const aot_code code = pjrt_put(f->artifact->runtime, inputs[i].data ? inputs[i].data : nothing, leaf->dtype, leaf->rank,
                                   leaf->dims, !leaf->donated, leaf->name, &c->arguments[f->slots[i]], &c->events[i], error);
    if (code) return code;
    c->num_inputs = i + 1;
  }
  return AOT_OK;
}

static aot_code execute(call *c, aot_error *error) {
  const aot_function *f = c->f;
  PJRT_ExecuteOptions options;
  PJRT_Buffer *const *arguments[1];
  PJRT_Buffer **results[1];
  PJRT_Event *complete[1] = {NULL};
  aot_code code;
  ARGS(PJRT_LoadedExecutable_Execute, a);
  memset(&options, 0, sizeof options);
  options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  options.non_donatable_input_indices = f->kept, options.num_non_donatable_input_indices = f->num_weights;
  arguments[0] = c->arguments, results[0] = c->results;
  a.executable = f->executable, a.options = &options, a.num_devices = 1;
  a.argument_lists = arguments, a.num_args = f->num_parameters, a.output_lists = results;
  a.device_complete_events = f->signature.num_outputs ? NULL : complete; /* results are waited for when they are read */
  code = pjrt_failed(c->api, c->api->PJRT_LoadedExecutable_Execute(&a), AOT_ERROR_PLUGIN, f->signature.name, "execution failed",
                     error);
  if (code) return code;
  c->num_results = f->signature.num_outputs;
  return pjrt_await(c->api, complete[0], f->signature.name, "execution failed", error);
}

/* Whether a result that is ready lies in host memory, dense and row-major: then it is copied from there, without a detour
 * over the plugin's threads.  Anything unexpected means no. */
static const void *in_host_memory(const call *c, size_t i) {
  const PJRT_Api *api = c->api;
  const size_t rank = c->f->signature.outputs[i].rank;
  const aot_dtype dtype = c->f->signature.outputs[i].dtype;
  ARGS(PJRT_Buffer_GetMemoryLayout, layout);
  ARGS(PJRT_Buffer_OpaqueDeviceMemoryDataPointer, memory);
  layout.buffer = memory.buffer = c->results[i];
  if (!c->f->artifact->runtime->host_memory || dtype == AOT_I4 || dtype == AOT_U4) return NULL; /* 4 bits are packed there */
  if (pjrt_failed(api, api->PJRT_Buffer_GetMemoryLayout(&layout), AOT_ERROR_PLUGIN, "", "", NULL)) return NULL;
  if (layout.layout.type != PJRT_Buffer_MemoryLayout_Type_Tiled || layout.layout.tiled.num_tiles ||
      layout.layout.tiled.minor_to_major_size != rank ||
      (rank && memcmp(layout.layout.tiled.minor_to_major, c->f->layouts[i].tiled.minor_to_major, rank * sizeof(int64_t))))
    return NULL;
  if (pjrt_failed(api, api->PJRT_Buffer_OpaqueDeviceMemoryDataPointer(&memory), AOT_ERROR_PLUGIN, "", "", NULL)) return NULL;
  return memory.device_memory_ptr;
}

/* Wait for one result.  An execution that fails shows here. */
static aot_code wait_for_output(call *c, size_t i, aot_error *error) {
  const char *name = c->f->signature.outputs[i].name;
  ARGS(PJRT_Buffer_ReadyEvent, ready);
  ready.buffer = c->results[i];
  if (pjrt_failed(c->api, c->api->PJRT_Buffer_ReadyEvent(&ready), AOT_ERROR_PLUGIN, name, "execution failed", error))
    return AOT_ERROR_PLUGIN;
  return pjrt_await(c->api, ready.event, name, "execution failed", error);
}

static aot_code read_output(call *c, size_t i, void *data, aot_error *error) {
  const aot_leaf *leaf = &c->f->signature.outputs[i];
  const void *here = in_host_memory(c, i);
  ARGS(PJRT_Buffer_ToHostBuffer, a);
  if (here) {
    memcpy(data, here, leaf->bytes);
    return AOT_OK;
  }
  a.src = c->results[i], a.host_layout = &c->f->layouts[i], a.dst = data, a.dst_size = leaf->bytes;
  if (pjrt_failed(c->api, c->api->PJRT_Buffer_ToHostBuffer(&a), AOT_ERROR_PLUGIN, leaf->name, "reading the result", error))
    return AOT_ERROR_PLUGIN;
  c->events[c->f->signature.num_inputs + i] = a.event;
  return AOT_OK;
}

static aot_code read_outputs(call *c, void *const *data, aot_error *error) {
  const aot_signature *s = &c->f->signature;
  aot_code code = AOT_OK;
  size_t i;
  for (i = 0; i < s->num_outputs; i++) { /* all of them, so that nothing runs when the caller's inputs end */
    const aot_code late = wait_for_output(c, i, code ? NULL : error);
    if (!code) code = late;
  }
  for (i = 0; i < s->num_outputs && !code; i++)
    if (s->outputs[i].bytes) code = read_output(c, i, data[i], error);
  for (i = 0; i < s->num_outputs; i++) {
    const aot_code late =
        pjrt_await(c->api, c->events[s->num_inputs + i], s->outputs[i].name, "reading the result", code ? NULL : error);
    if (!code) code = late;
  }
  return code;
}

/* Buffers first: the event of an argument that was used in place happens when its buffer ends. */
static void end_call(call *c) {
  size_t i;
  for (i = 0; i < c->num_results; i++) pjrt_free_buffer(c->api, c->results[i]);
  for (i = 0; i < c->num_inputs; i++) pjrt_free_buffer(c->api, c->arguments[c->f->slots[i]]);
  for (i = 0; i < c->num_inputs; i++) pjrt_await(c->api, c->events[i], "", "", NULL);
}

/* Memory for the results that the caller gave none for. */
static aot_code make_outputs(const aot_signature *s, const aot_array *outputs, void **data, aot_error *error) {
  size_t i;
  for (i = 0; i < s->num_outputs; i++) {
    data[i] = outputs[i].data;
    if (!data[i] && posix_memalign(&data[i], 64, s->outputs[i].bytes ? s->outputs[i].bytes : 64)) {
      data[i] = NULL;
      return no_memory(error);
    }
  }
  return AOT_OK;
}

static void fill_outputs(const aot_signature *s, aot_array *outputs, void **data, aot_code code) {
  size_t i;
  for (i = 0; i < s->num_outputs; i++) {
    const aot_leaf *leaf = &s->outputs[i];
    if (code) {
      if (data[i] != outputs[i].data) free(data[i]);
      continue;
    }
    outputs[i].data = data[i], outputs[i].bytes = leaf->bytes, outputs[i].dtype = leaf->dtype;
    outputs[i].rank = leaf->rank, outputs[i].dims = leaf->dims;
  }
}

aot_code aot_call(const aot_function *f, const aot_array *inputs, size_t num_inputs, aot_array *outputs, size_t num_outputs,
                  aot_error *error) {
  void *on_stack[CALL_ON_STACK], **room = on_stack, **data;
  const aot_signature *s = &f->signature;
  const size_t wanted = f->num_parameters + 2 * num_outputs + num_inputs + num_outputs;
  call c;
  aot_code code = check_call(f, inputs, num_inputs, outputs, num_outputs, error);
  if (code) return code;
  if (wanted > CALL_ON_STACK && !(room = malloc(wanted * sizeof *room))) return no_memory(error);
  memset(room, 0, wanted * sizeof *room);
  if (f->num_parameters) memcpy(room, f->weights, f->num_parameters * sizeof *room);
  memset(&c, 0, sizeof c);
  c.f = f, c.api = f->artifact->runtime->api;
  c.arguments = (PJRT_Buffer **)room, c.results = c.arguments + f->num_parameters;
  data = room + f->num_parameters + num_outputs, c.events = (PJRT_Event **)(data + num_outputs);
  code = make_outputs(s, outputs, data, error);
  if (!code) code = put_inputs(&c, inputs, error);
  if (!code) code = execute(&c, error);
  if (!code) code = read_outputs(&c, data, error);
  end_call(&c);
  fill_outputs(s, outputs, data, code);
  if (room != on_stack) free(room);
  return code;
}

void aot_array_free(aot_array *array) {
  if (!array) return;
  free(array->data);
  array->data = NULL;
}

#endif
