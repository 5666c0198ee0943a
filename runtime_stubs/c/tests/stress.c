/* Many threads call functions of one artifact: results are right and memory stays flat.
 *
 *     stress FILE PLUGIN THREADS CALLS            every thread makes CALLS calls; functions in turn
 *     stress FILE PLUGIN reload COUNT             opens, loads, calls and closes COUNT times
 *
 * Prints {"calls", "wrong", "microseconds" of a call, "growth" of resident memory in KiB after a warm-up}. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../aot_runtime.h"

typedef struct job {
  const aot_function *f;
  const aot_array *inputs;
  aot_array *expected;
  long calls, wrong;
} job;

static void quit(const aot_error *error) {
  char text[1100];
  fprintf(stderr, "error: %s\n", aot_error_text(error, text, sizeof text));
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static long resident(void) { /* KiB */
  long pages = 0, all;
  FILE *f = fopen("/proc/self/statm", "r");
  if (!f || fscanf(f, "%ld %ld", &all, &pages) != 2) pages = 0;
  if (f) fclose(f);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void *work(void *argument) {
  job *j = argument;
  const aot_signature *s = aot_function_signature(j->f);
  long n;
  for (n = 0; n < j->calls; n++) {
    aot_array outputs[8] = {{0}};
    aot_error error;
    size_t i;
    if (aot_call(j->f, j->inputs, s->num_inputs, outputs, s->num_outputs, &error)) quit(&error);
    for (i = 0; i < s->num_outputs; i++) {
      j->wrong += memcmp(outputs[i].data, j->expected[i].data, outputs[i].bytes) != 0;
      aot_array_free(&outputs[i]);
    }
  }
  return NULL;
}

static void run_threads(job *jobs, int threads, long calls) {
  pthread_t ids[64];
  int i;
  for (i = 0; i < threads; i++) {
    jobs[i].calls = calls;
    if (pthread_create(&ids[i], NULL, work, &jobs[i])) exit(1);
  }
  for (i = 0; i < threads; i++) pthread_join(ids[i], NULL);
}

static job prepare(aot_artifact *a, const char *name) {
  job j = {0};
  aot_error error;
  const aot_array *recorded;
  const aot_signature *s;
  if (aot_artifact_function(a, name, &j.f, &error) || aot_artifact_golden(a, name, &j.inputs, &recorded, &error)) quit(&error);
  s = aot_function_signature(j.f);
  j.expected = calloc(s->num_outputs, sizeof *j.expected);
  if (aot_call(j.f, j.inputs, s->num_inputs, j.expected, s->num_outputs, &error)) quit(&error);
  return j;
}

static void free_job(job *j) {
  size_t i;
  for (i = 0; i < aot_function_signature(j->f)->num_outputs; i++) aot_array_free(&j->expected[i]);
  free(j->expected);
}

static int threads_case(const char *path, aot_runtime *runtime, int threads, long calls) {
  job jobs[64];
  aot_artifact *a;
  aot_error error;
  long wrong = 0, before;
  double start;
  int i;
  if (aot_artifact_open(path, runtime, AOT_STRICT, NULL, &a, &error)) quit(&error);
  for (i = 0; i < threads; i++) jobs[i] = prepare(a, aot_artifact_function_name(a, (size_t)i % aot_artifact_num_functions(a)));
  run_threads(jobs, threads, calls / 4 + 1);
  before = resident(), start = now();
  run_threads(jobs, threads, calls);
  printf("{\"calls\": %ld, \"microseconds\": %.2f, \"growth\": %ld, ", threads * calls,
         (now() - start) / (double)(threads * calls), resident() - before);
  for (i = 0; i < threads; i++) {
    wrong += jobs[i].wrong;
    free_job(&jobs[i]);
  }
  printf("\"wrong\": %ld}\n", wrong);
  aot_artifact_close(a);
  return wrong != 0;
}

static int reload_case(const char *path, aot_runtime *runtime, long count) {
  aot_artifact *a;
  aot_error error;
  long n, before = 0;
  for (n = 0; n < count; n++) {
    job j;
    if (n == count / 4) before = resident();
    if (aot_artifact_open(path, runtime, AOT_STRICT, NULL, &a, &error)) quit(&error);
    j = prepare(a, aot_artifact_function_name(a, 0));
    free_job(&j);
    aot_artifact_close(a);
  }
  printf("{\"calls\": %ld, \"growth\": %ld, \"wrong\": 0}\n", count, resident() - before);
  return 0;
}

int main(int argc, char **argv) {
  aot_runtime_options options = {0};
  aot_runtime *runtime;
  aot_error error;
  int code;
  if (argc != 5) return 2;
  options.plugin = argv[2];
  if (aot_runtime_open(&options, &runtime, &error)) quit(&error);
  code = strcmp(argv[3], "reload") ? threads_case(argv[1], runtime, atoi(argv[3]), atol(argv[4]))
                                   : reload_case(argv[1], runtime, atol(argv[4]));
  aot_runtime_close(runtime);
  return code;
}
