/* Runs `predict` of model.aot.   ./main_c model.aot PLUGIN */
#include <stdio.h>

#include <aot_runtime.h>

static int report(const aot_error *error) {
  char text[1100];
  fprintf(stderr, "error: %s\n", aot_error_text(error, text, sizeof text));
  return 1;
}

int main(int argc, char **argv) {
  float x[8 * 16], y[8 * 4];
  const int64_t shape[] = {8, 16};
  aot_array input = {x, sizeof x, AOT_F32, 2, shape}, output = {y, sizeof y, AOT_F32, 0, NULL};
  aot_runtime_options options = {0};
  aot_runtime *runtime = NULL;
  aot_artifact *artifact = NULL;
  const aot_function *predict = NULL;
  aot_error error;
  int code = 0, i;

  if (argc != 3) {
    fprintf(stderr, "usage: %s MODEL.aot PLUGIN.so\n", argv[0]);
    return 2;
  }
  for (i = 0; i < 8 * 16; i++) x[i] = (float)(i % 7) / 7;
  options.plugin = argv[2];
  if (aot_runtime_open(&options, &runtime, &error) || aot_artifact_open(argv[1], runtime, 0, NULL, &artifact, &error) ||
      aot_artifact_function(artifact, "predict", &predict, &error) || aot_call(predict, &input, 1, &output, 1, &error))
    code = report(&error);
  for (i = 0; !code && i < 8; i++) printf("%.4f %.4f %.4f %.4f\n", y[4 * i], y[4 * i + 1], y[4 * i + 2], y[4 * i + 3]);
  aot_artifact_close(artifact);
  aot_runtime_close(runtime);
  return code;
}
