// Runs `predict` of model.aot.   ./main_cpp model.aot PLUGIN
#include <cstdio>
#include <exception>

#include <aot_runtime.hpp>

int main(int argc, char **argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL.aot PLUGIN.so\n", argv[0]);
    return 2;
  }
  aot::Runtime runtime(argv[2]);
  aot::Artifact artifact(argv[1], runtime);
  aot::Function predict = artifact["predict"];

  aot::Array x(AOT_F32, {8, 16});
  for (int i = 0; i < 8 * 16; i++) x.as<float>()[i] = static_cast<float>(i % 7) / 7;
  const std::vector<aot::Array> results = predict({x});
  const aot::Span<float> y = results[0].as<float>();
  for (int i = 0; i < 8; i++) std::printf("%.4f %.4f %.4f %.4f\n", y[4 * i], y[4 * i + 1], y[4 * i + 2], y[4 * i + 3]);
} catch (const std::exception &e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return 1;
}
