/* aot-run: looks at `.aot` artifacts and runs their functions. */
#define _GNU_SOURCE
#include <errno.h>
#include <time.h>

#include "npy.h"

static const char usage[] =
    "usage: aot-run FILE                                     what it holds\n"
    "       aot-run FILE --verify                            check every member\n"
    "       aot-run FILE --explain [--plugin PLUGIN]         what would run here, and why\n"
    "       aot-run FILE FUNCTION --plugin PLUGIN [INPUT.npy ...]\n"
    "\n"
    "Runs a function on .npy files, one for each input in flat order, and prints its results.\n"
    "\n"
    "  --plugin PLUGIN        a PJRT plugin (default: $AOT_PJRT_PLUGIN)\n"
    "  --option NAME=VALUE    a create option of the plugin: true, false, a number or a text; may be repeated\n"
    "  -o, --output PREFIX    write the results to PREFIX.0.npy, PREFIX.1.npy, ... instead of printing them\n"
    "  --golden               run on the inputs recorded at build time, and tell how far the results are from the recorded "
    "ones\n"
    "  --strict               refuse to compile what has no executable for this host\n"
    "  --weights FILE         a safetensors file in place of the one that the artifact names\n"
    "  --repeat N             call N times and print the microseconds of a call\n"
    "  --device N             which of the plugin's devices (default: 0)\n"
    "  --timeout SECONDS      for loading the plugin (default: 60)\n"
    "  --help, --version\n";

typedef struct command {
  const char *file, *function, *plugin, *output, *weights;
  char **inputs; /* and their number */
  size_t num_inputs, num_options;
  aot_option options[32];
  bool verify, explain, golden, strict;
  long repeat, timeout, device;
} command;

static int complain(const aot_error *error) {
  char text[1100];
  fprintf(stderr, "error: %s\n", aot_error_text(error, text, sizeof text));
  return 1;
}

static int misuse(const char *what, const char *name) {
  fprintf(stderr, "error: %s%s\nhint: aot-run --help\n", what, name);
  return 2;
}

/* ---- the command line ---- */

static bool parse_option(aot_option *o, char *text) {
  char *equals = strchr(text, '='), *end;
  if (!equals || equals == text) return false;
  memset(o, 0, sizeof *o);
  *equals = 0;
  o->name = text, o->string = equals + 1;
  o->integer = strtoll(o->string, &end, 10);
  if (*o->string && !*end) {
    o->type = AOT_OPTION_INT;
    return true;
  }
  o->real = strtof(o->string, &end);
  if (*o->string && !*end) {
    o->type = AOT_OPTION_FLOAT;
    return true;
  }
  o->integer = !strcmp(o->string, "true");
  o->type = o->integer || !strcmp(o->string, "false") ? AOT_OPTION_BOOL : AOT_OPTION_STRING;
  return true;
}

static bool parse_count(const char *text, long least, long most, long *out) {
  char *end;
  *out = strtol(text, &end, 10);
  return *text && !*end && *out >= least && *out <= most;
}

static bool parse_flag(command *c, const char *arg) {
  bool *flag = !strcmp(arg, "--verify")    ? &c->verify
               : !strcmp(arg, "--explain") ? &c->explain
               : !strcmp(arg, "--golden")  ? &c->golden
               : !strcmp(arg, "--strict")  ? &c->strict
                                           : NULL;
  if (flag) *flag = true;
  return flag != NULL;
}

/* An option with a value: 0, or 2 after a complaint. */
static int parse_value(command *c, const char *arg, char *value) {
  const char **text = !strcmp(arg, "--plugin")                         ? &c->plugin
                      : !strcmp(arg, "--weights")                      ? &c->weights
                      : !strcmp(arg, "-o") || !strcmp(arg, "--output") ? &c->output
                                                                       : NULL;
  if (!value) return misuse("a value is missing after ", arg);
  if (text) {
    *text = value;
    return 0;
  }
  if (!strcmp(arg, "--repeat"))
    return parse_count(value, 1, 1000000000, &c->repeat) ? 0 : misuse("--repeat takes a number, not ", value);
  if (!strcmp(arg, "--timeout"))
    return parse_count(value, 1, 86400, &c->timeout) ? 0 : misuse("--timeout takes seconds, not ", value);
  if (!strcmp(arg, "--device"))
    return parse_count(value, 0, 1 << 20, &c->device) ? 0 : misuse("--device takes a number, not ", value);
  if (c->num_options == sizeof c->options / sizeof *c->options) return misuse("too many times ", arg);
  return parse_option(&c->options[c->num_options++], value) ? 0 : misuse("--option takes NAME=VALUE, not ", value);
}

static bool takes_value(const char *arg) {
  static const char *const names[] = {"--plugin", "--weights", "-o",       "--output",
                                      "--repeat", "--timeout", "--device", "--option"};
  size_t i;
  for (i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(arg, names[i])) return true;
  return false;
}

static int parse(command *c, int argc, char **argv) {
  int i, code;
  c->plugin = getenv("AOT_PJRT_PLUGIN"), c->inputs = calloc((size_t)argc, sizeof *argv);
  if (!c->inputs) return misuse("out of memory", "");
  for (i = 1; i < argc; i++) {
    if (takes_value(argv[i])) {
      if ((code = parse_value(c, argv[i], argv[i + 1])) != 0) return code;
      i++;
    } else if (argv[i][0] == '-' && !parse_flag(c, argv[i]))
      return misuse("there is no option ", argv[i]);
    else if (argv[i][0] == '-')
      continue;
    else if (!c->file)
      c->file = argv[i];
    else if (!c->function)
      c->function = argv[i];
    else
      c->inputs[c->num_inputs++] = argv[i];
  }
  if (!c->file) return misuse("no artifact was given", "");
  if (c->function && !c->plugin) return misuse("a function needs --plugin, or AOT_PJRT_PLUGIN", "");
  if (c->golden && c->num_inputs) return misuse("--golden brings its own inputs", "");
  return 0;
}

/* ---- what it does ---- */

static int list_functions(aot_artifact *a) {
  size_t i, k;
  for (i = 0; i < aot_artifact_num_functions(a); i++) {
    const aot_signature *s;
    aot_error error;
    if (aot_artifact_signature(a, aot_artifact_function_name(a, i), &s, &error)) return complain(&error);
    printf("%s\n", s->name);
    for (k = 0; k < s->num_inputs + s->num_outputs; k++) {
      const aot_leaf *leaf = k < s->num_inputs ? &s->inputs[k] : &s->outputs[k - s->num_inputs];
      size_t d;
      printf("  %s %s %s[", k < s->num_inputs ? "in " : "out", leaf->name, aot_dtype_name(leaf->dtype));
      for (d = 0; d < leaf->rank; d++) printf("%s%" PRId64, d ? "," : "", leaf->dims[d]);
      printf("]%s%s%s\n", strcmp(leaf->type, aot_dtype_name(leaf->dtype)) ? " of " : "",
             strcmp(leaf->type, aot_dtype_name(leaf->dtype)) ? leaf->type : "", leaf->donated ? ", donated" : "");
    }
  }
  return 0;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void print_difference(const aot_array *got, const aot_array *want) {
  const size_t count = got->bytes / aot_dtype_size(got->dtype);
  double worst = 0;
  size_t i;
  for (i = 0; i < count; i++) {
    double x, y, dx, dy, d;
    x = npy_value(got, i, &dx), y = npy_value(want, i, &dy);
    d = (x > y ? x - y : y - x) + (dx > dy ? dx - dy : dy - dx);
    if (d > worst || (d != d && (x == x) != (y == y))) worst = d;
  }
  printf("  largest difference from the recorded result: %.3g\n", worst);
}

static int give_results(const command *c, const aot_signature *s, aot_array *outputs, const aot_array *want) {
  size_t i;
  for (i = 0; i < s->num_outputs; i++) {
    char path[4000];
    if (!c->output) {
      npy_print(s->outputs[i].name, &outputs[i]);
      if (want) print_difference(&outputs[i], &want[i]);
      continue;
    }
    snprintf(path, sizeof path, "%s.%zu.npy", c->output, i);
    if (!npy_write(path, &outputs[i])) {
      fprintf(stderr, "error: %s: cannot be written: %s\n", path, strerror(errno));
      return 1;
    }
  }
  return 0;
}

static int call(const command *c, const aot_function *f, const aot_array *inputs, size_t num_inputs, const aot_array *want) {
  const aot_signature *s = aot_function_signature(f);
  aot_array *outputs = calloc(s->num_outputs + 1, sizeof *outputs);
  aot_error error;
  int code = outputs ? 0 : misuse("out of memory", "");
  size_t i;
  const double start = now();
  long n;
  for (n = 0; !code && n < (c->repeat ? c->repeat : 1); n++)
    if (aot_call(f, inputs, num_inputs, outputs, s->num_outputs, &error)) code = complain(&error);
  if (!code && c->repeat) printf("%.2f us a call\n", (now() - start) / (double)c->repeat);
  if (!code) code = give_results(c, s, outputs, want);
  for (i = 0; outputs && i < s->num_outputs; i++) aot_array_free(&outputs[i]);
  free(outputs);
  return code;
}

static int read_and_call(const command *c, const aot_function *f) {
  const aot_signature *s = aot_function_signature(f);
  npy *files = calloc(c->num_inputs + 1, sizeof *files);
  aot_array *inputs = calloc(c->num_inputs + 1, sizeof *inputs);
  size_t i;
  int code = files && inputs ? 0 : misuse("out of memory", "");
  for (i = 0; !code && i < c->num_inputs; i++) {
    const char *why = npy_read(c->inputs[i], i < s->num_inputs ? s->inputs[i].dtype : AOT_F32, &files[i]);
    if (why) {
      fprintf(stderr, "error: %s: %s\n", c->inputs[i], why);
      code = 1;
    }
    inputs[i] = files[i].array;
  }
  if (!code) code = call(c, f, inputs, c->num_inputs, NULL);
  for (i = 0; files && i < c->num_inputs; i++) npy_free(files[i].file, files[i].file_size);
  free(files);
  free(inputs);
  return code;
}

static int run_function(const command *c, aot_artifact *a) {
  const aot_function *f;
  const aot_array *inputs, *want;
  aot_error error;
  if (aot_artifact_function(a, c->function, &f, &error)) return complain(&error);
  if (*aot_function_reason(f) && !strcmp(aot_function_target(f), "stablehlo"))
    fprintf(stderr, "%s: compiled its StableHLO for this host (%s)\n", c->function, aot_function_reason(f));
  if (!c->golden) return read_and_call(c, f);
  if (aot_artifact_golden(a, c->function, &inputs, &want, &error)) return complain(&error);
  return call(c, f, inputs, aot_function_signature(f)->num_inputs, want);
}

static int with_artifact(const command *c, aot_artifact *a) {
  aot_error error;
  char *text;
  if (c->verify) {
    if (aot_artifact_verify(a, &error)) return complain(&error);
    printf("%s: every member is as it was written\n", c->file);
  }
  if (c->explain) {
    if (aot_artifact_explain(a, &text, &error)) return complain(&error);
    fputs(text, stdout);
    aot_free(text);
  }
  if (c->function) return run_function(c, a);
  return c->verify || c->explain ? 0 : list_functions(a);
}

static int run(const command *c) {
  aot_runtime_options options = {0};
  aot_runtime *runtime = NULL;
  aot_artifact *artifact = NULL;
  aot_error error;
  int code = 0;
  options.plugin = c->plugin, options.timeout_ms = (unsigned)(c->timeout * 1000), options.device = (size_t)c->device;
  options.create_options = c->num_options ? c->options : NULL, options.num_create_options = c->num_options;
  if ((c->function || c->explain) && c->plugin && aot_runtime_open(&options, &runtime, &error)) {
    code = complain(&error);
    if (error.code == AOT_ERROR_TIMEOUT) _exit(code); /* a thread is still inside the plugin */
  }
  if (!code && aot_artifact_open(c->file, runtime, c->strict ? AOT_STRICT : 0, c->weights, &artifact, &error))
    code = complain(&error);
  if (!code) code = with_artifact(c, artifact);
  aot_artifact_close(artifact);
  aot_runtime_close(runtime);
  return code;
}

int main(int argc, char **argv) {
  command c = {0};
  int code;
  if (argc == 2 && !strcmp(argv[1], "--help")) {
    fputs(usage, stdout);
    return 0;
  }
  if (argc == 2 && !strcmp(argv[1], "--version")) {
    puts("aot-run " AOT_RUNTIME_VERSION);
    return 0;
  }
  setenv("TF_CPP_MIN_LOG_LEVEL", "1", 0); /* what XLA has to say about its options */
  code = parse(&c, argc, argv);
  if (!code) code = run(&c);
  free(c.inputs);
  return fflush(stdout) ? 1 : code;
}
