/* aot_runtime.h: runs the functions of `.aot` artifacts through a PJRT plugin, without Python.
 *
 *     aot_runtime *runtime;  aot_artifact *artifact;  const aot_function *predict;  aot_error error;
 *     aot_runtime_options options = {.plugin = "/opt/pjrt/pjrt_c_api_cpu_plugin.so"};
 *     if (aot_runtime_open(&options, &runtime, &error) ||
 *         aot_artifact_open("model.aot", runtime, 0, NULL, &artifact, &error) ||
 *         aot_artifact_function(artifact, "predict", &predict, &error) ||
 *         aot_call(predict, inputs, 1, outputs, 1, &error)) { ... error.message ... }
 *
 * Needs libc, libdl and pthread.  There are no globals: every object belongs to whoever opened it.  Objects are closed
 * in the opposite order of opening (functions belong to their artifact).  All calls are thread-safe, except that an
 * object must not be closed while it is in use.
 *
 * Errors are values: every call that can fail returns AOT_OK (0) or a code, and fills the caller's `aot_error` (which
 * may be NULL).  On failure outputs are not touched, except for the memory that they point to.
 *
 * What runs.  Every member of an artifact is checked against the sha256 in its manifest before it is used.  A serialized
 * executable is tried only on the plugin that it was compiled with (by the sha256 of the plugin's file; `aot compile
 * --target pjrt:PLUGIN` makes one) and only on a CPU that has every instruction set extension that it may use.
 * Otherwise the StableHLO program of the function is compiled by the plugin, or refused under AOT_STRICT;
 * `aot_artifact_explain` and `aot_function_reason` tell which and why.
 *
 * A checksum protects against damage, not against malice: an artifact holds machine code, so open only files that you
 * would run.
 */
#ifndef AOT_RUNTIME_H
#define AOT_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AOT_RUNTIME_VERSION "0.1.0"
#define AOT_SCHEMA 1 /* the newest manifest schema that this loader reads */

#if defined(__GNUC__) && defined(AOT_RUNTIME_SHARED)
#define AOT_API __attribute__((visibility("default")))
#else
#define AOT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ------------------------------------------------------------------------------------------------------ */

typedef enum aot_code {
  AOT_OK = 0,
  AOT_ERROR_FILE,    /* a file is missing or cannot be read */
  AOT_ERROR_FORMAT,  /* not an artifact, or damaged: `where` names the member */
  AOT_ERROR_VERSION, /* written for a newer loader */
  AOT_ERROR_NAME,    /* no such function */
  AOT_ERROR_INPUT,   /* an argument does not fit the signature: `where` names it */
  AOT_ERROR_HOST,    /* no executable fits this host and plugin, and compiling was refused or is impossible */
  AOT_ERROR_PLUGIN,  /* the plugin cannot be loaded, has no device, or reported an error */
  AOT_ERROR_TIMEOUT, /* the plugin did not answer in time */
  AOT_ERROR_MEMORY   /* out of memory */
} aot_code;

typedef struct aot_error {
  aot_code code;
  char where[256];   /* file, member, function or argument; may be "" */
  char message[512]; /* what is wrong */
  char hint[256];    /* what to do about it; may be "" */
} aot_error;

/* "where: message\nhint: hint" as text; returns buffer. */
AOT_API const char *aot_error_text(const aot_error *error, char *buffer, size_t size);

/* ---- a plugin and its client -------------------------------------------------------------------------------------- */

typedef struct aot_runtime aot_runtime;

typedef enum aot_option_type { AOT_OPTION_STRING, AOT_OPTION_INT, AOT_OPTION_BOOL, AOT_OPTION_FLOAT } aot_option_type;

typedef struct aot_option {
  const char *name;
  aot_option_type type;
  const char *string;
  int64_t integer; /* also for AOT_OPTION_BOOL */
  float real;
} aot_option;

typedef struct aot_runtime_options {
  const char *plugin;               /* path of a PJRT plugin: a CPU plugin, xla_cuda_plugin.so, libtpu.so, ... */
  const aot_option *create_options; /* for PJRT_Client_Create; NULL: synchronous execution where the plugin offers it */
  size_t num_create_options;
  unsigned timeout_ms;        /* for loading the plugin and making its client; 0: 60,000 */
  size_t device;              /* index among the client's addressable devices */
  const char *identity_cache; /* folder that remembers the sha256 of plugin files by path, size and times, because hashing
                                 200 MB takes longer than everything else; NULL: ~/.cache/aot/plugins; "": none */
} aot_runtime_options;

/* Loads a plugin and makes its client.
 * After AOT_ERROR_TIMEOUT a thread is still inside the plugin: end the process rather than trying again. */
AOT_API aot_code aot_runtime_open(const aot_runtime_options *options, aot_runtime **runtime, aot_error *error);
AOT_API void aot_runtime_close(aot_runtime *runtime);

AOT_API const char *aot_runtime_platform(const aot_runtime *runtime);                     /* "cpu", "cuda", "tpu" */
AOT_API void aot_runtime_api_version(const aot_runtime *runtime, int *major, int *minor); /* of the plugin */
AOT_API size_t aot_runtime_num_devices(const aot_runtime *runtime);

/* ---- arrays and signatures ----------------------------------------------------------------------------------------- */

typedef enum aot_dtype {
  AOT_INVALID,
  AOT_BOOL,
  AOT_I8,
  AOT_I16,
  AOT_I32,
  AOT_I64,
  AOT_U8,
  AOT_U16,
  AOT_U32,
  AOT_U64,
  AOT_F16,
  AOT_BF16,
  AOT_F32,
  AOT_F64,
  AOT_C64,
  AOT_C128,
  AOT_F8E4M3FN,
  AOT_F8E5M2,
  AOT_F8E4M3B11FNUZ,
  AOT_F8E4M3FNUZ,
  AOT_F8E5M2FNUZ,
  AOT_I4,
  AOT_U4, /* one byte an element */
  AOT_NUM_DTYPES
} aot_dtype;

AOT_API const char *aot_dtype_name(aot_dtype dtype); /* "float32", ...: numpy's or ml_dtypes' name */
AOT_API size_t aot_dtype_size(aot_dtype dtype);      /* bytes of one element */

/* A dense row-major array in host memory.  64-byte aligned inputs are used in place, others are copied once. */
typedef struct aot_array {
  void *data;
  size_t bytes;
  aot_dtype dtype;
  size_t rank;
  const int64_t *dims;
} aot_array;

/* One input or output. */
typedef struct aot_leaf {
  const char *name; /* "params['w1']", "result[0]" */
  const char *type; /* as declared: "float32", or "key<fry>", whose array is U32 with one more axis of 2 */
  aot_dtype dtype;  /* of the array */
  size_t rank;
  const int64_t *dims;
  size_t bytes;
  bool donated; /* the program may reuse a device copy of it; the caller's memory is never written to */
} aot_leaf;

typedef struct aot_signature {
  const char *name;
  size_t num_inputs, num_outputs;
  const aot_leaf *inputs, *outputs; /* the leaves of the arguments and of the result, in flat order */
} aot_signature;

/* ---- artifacts ------------------------------------------------------------------------------------------------------ */

typedef struct aot_artifact aot_artifact;
typedef struct aot_function aot_function;

enum { AOT_STRICT = 1 }; /* flags: refuse to compile what has no executable for this host */

/* Opens an artifact: reads its directory and manifest only.
 * runtime: what functions will run on; NULL to look at the artifact without running anything.
 * weights: a safetensors file instead of the one that an artifact with separate weights names; usually NULL. */
AOT_API aot_code aot_artifact_open(const char *path, aot_runtime *runtime, unsigned flags, const char *weights,
                                   aot_artifact **artifact, aot_error *error);
/* The same for bytes in memory, which must stay there until the artifact is closed.  name: for messages. */
AOT_API aot_code aot_artifact_open_memory(const void *data, size_t size, const char *name, aot_runtime *runtime, unsigned flags,
                                          const char *weights, aot_artifact **artifact, aot_error *error);
AOT_API void aot_artifact_close(aot_artifact *artifact);

AOT_API size_t aot_artifact_num_functions(const aot_artifact *artifact);
AOT_API const char *aot_artifact_function_name(const aot_artifact *artifact, size_t index);

/* Checks every member.  The error names the first one that is damaged or missing. */
AOT_API aot_code aot_artifact_verify(aot_artifact *artifact, aot_error *error);

/* What a function takes and returns; no native code is loaded. */
AOT_API aot_code aot_artifact_signature(aot_artifact *artifact, const char *name, const aot_signature **signature,
                                        aot_error *error);

/* For every function, each executable with the reason why it can or cannot run here, and what would run.
 * The text is the caller's: aot_free it. */
AOT_API aot_code aot_artifact_explain(aot_artifact *artifact, char **text, aot_error *error);

/* The inputs and outputs that were recorded at build time, in flat order: arrays that point into the artifact.
 * Returns AOT_ERROR_NAME when none were recorded. */
AOT_API aot_code aot_artifact_golden(aot_artifact *artifact, const char *name, const aot_array **inputs,
                                     const aot_array **outputs, aot_error *error);

/* ---- functions ------------------------------------------------------------------------------------------------------ */

/* A function, verified and ready to be called.  Made once; weights are uploaded once per artifact. */
AOT_API aot_code aot_artifact_function(aot_artifact *artifact, const char *name, const aot_function **function,
                                       aot_error *error);

AOT_API const aot_signature *aot_function_signature(const aot_function *function);
AOT_API const char *aot_function_target(const aot_function *function); /* of its executable, or "stablehlo" */
AOT_API const char *aot_function_reason(const aot_function *function); /* why executables were passed over, or "" */

/* Runs a function and waits for its results.
 * outputs: where `data` is NULL, 64-byte aligned memory is made (aot_array_free it); otherwise `bytes` of it are the
 * caller's, at least what the signature says, and are written to.  The other fields are filled in. */
AOT_API aot_code aot_call(const aot_function *function, const aot_array *inputs, size_t num_inputs, aot_array *outputs,
                          size_t num_outputs, aot_error *error);

AOT_API void aot_array_free(aot_array *array); /* memory that aot_call made */
AOT_API void aot_free(void *text);

#ifdef __cplusplus
}
#endif
#endif
