// The C++ interface: values, ownership, exceptions.   api ALL.aot PLUGIN
#include <cmath>
#include <cstdio>
#include <optional>
#include <thread>

#include <aot_runtime.hpp>

#define CHECK(...) \
  if (!(__VA_ARGS__)) return std::fprintf(stderr, "line %d: %s\n", __LINE__, #__VA_ARGS__), 1

template <class F>
static std::optional<aot::Error> thrown(F f) {
  try {
    f();
  } catch (const aot::Error &e) { return e; }
  return std::nullopt;
}

static aot::Function load_and_forget(const char *path, const char *plugin, const char *name) {
  aot::Artifact artifact(path, aot::Runtime(plugin), true);
  return artifact[name];  // keeps artifact and runtime alive
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  CHECK(thrown([&] { aot::Artifact("missing.aot"); })->code == AOT_ERROR_FILE);
  CHECK(thrown([&] { aot::Runtime("missing.so"); })->where == "missing.so");
  CHECK(aot::Artifact(argv[1]).functions().size() > 20);
  aot::Artifact(argv[1]).verify();
  CHECK(thrown([&] { (void)aot::Artifact(argv[1])["mlp"]; })->message == "no plugin was loaded");

  const aot::Function twice = load_and_forget(argv[1], argv[2], "twice_f32");
  std::vector<float> x(15);
  for (int i = 0; i < 15; i++) x[i] = static_cast<float>(i);
  const aot::Array in = aot::Array::view(x.data(), {3, 5});
  const std::vector<aot::Array> out = twice({in});
  CHECK(out.size() == 1 && out[0].shape() == std::vector<std::int64_t>{3, 5} && out[0].dtype() == AOT_F32);
  for (int i = 0; i < 15; i++) CHECK(out[0].as<float>()[i] == 2 * x[i]);
  const float *before = out[0].as<const float>().data();
  x[0] = 7;
  twice.run({in}, out);
  CHECK(out[0].as<float>()[0] == 14 && out[0].as<float>().data() == before);
  CHECK(twice.target().rfind("pjrt:", 0) == 0 && twice.signature().num_inputs == 1);

  std::vector<float> room(16 * 2 + 8);  // arrays that are not aligned, in and out
  for (int shift = 0; shift < 4; shift++) {
    float *from = room.data() + shift, *to = room.data() + 20 + shift;
    for (int i = 0; i < 15; i++) from[i] = static_cast<float>(i + shift);
    twice.run({aot::Array::view(from, {3, 5})}, {aot::Array::view(to, {3, 5})});
    for (int i = 0; i < 15; i++) CHECK(to[i] == 2 * static_cast<float>(i + shift) && from[i] == static_cast<float>(i + shift));
  }
  const aot::Function donate = load_and_forget(argv[1], argv[2], "donate");  // the caller's memory stays as it is
  const aot::Array state = aot::Array::of(std::vector<float>(64, 4), {64}),
                   step = aot::Array::of(std::vector<float>(64, 1), {64});
  for (int i = 0; i < 3; i++) CHECK(donate({state, step})[0].as<float>()[63] == 3 && state.as<float>()[63] == 4);
  CHECK(donate.signature().inputs[0].donated && !donate.signature().inputs[1].donated);

  aot_array bare = in.c_array(), result{};  // a C array without dimensions
  aot_error error;
  bare.dims = nullptr;
  const aot::Artifact raw(argv[1], aot::Runtime(argv[2]));
  const aot_function *function = nullptr;
  CHECK(!aot_artifact_function(raw.get(), "twice_f32", &function, nullptr));
  CHECK(aot_call(function, &bare, 1, &result, 1, &error) == AOT_ERROR_INPUT &&
        std::string(error.message).find("dims missing") != std::string::npos);
  CHECK(aot_call(function, &bare, 1, &result, 1, nullptr) == AOT_ERROR_INPUT);
  bare = in.c_array();
  CHECK(!aot_call(function, &bare, 1, &result, 1, &error) && reinterpret_cast<std::uintptr_t>(result.data) % 64 == 0 &&
        result.rank == 2);
  aot_array_free(&result);

  CHECK(thrown([&] { twice({}); })->code == AOT_ERROR_INPUT);
  CHECK(thrown([&] { twice({aot::Array::view(x.data(), {5, 3})}); })->message == "expected f32[3,5], got f32[5,3]");
  CHECK(thrown([&] { twice({aot::Array(AOT_I32, {3, 5})}); })->message == "expected f32[3,5], got i32[3,5]");
  CHECK(thrown([&] { twice.run({in}, {aot::Array(AOT_F32, {15})}); })->where == "result");
  CHECK(thrown([&] { twice.run({in}, {}); })->code == AOT_ERROR_INPUT);
  CHECK(thrown([&] { out[0].as<double>(); })->message == "the array is float32, not float64");
  CHECK(thrown([&] { aot::Array::of(std::vector<int>{1, 2}, {3}); })->code == AOT_ERROR_INPUT);

  const aot::Runtime runtime(argv[2], {{"cpu_device_count", 2}, {"asynchronous", true}});
  CHECK(runtime.num_devices() == 2 && runtime.platform() == "cpu");
  const aot::Artifact artifact(argv[1], runtime);
  CHECK(artifact.explain().find("fits this host: used") != std::string::npos);
  const aot::Function complex = artifact["twice_c64"], wide = artifact["twice_i64"], truth = artifact["invert_bool"];
  std::vector<std::complex<float>> z(15, {1, -2});
  CHECK(complex({aot::Array::of(z, {3, 5})})[0].as<std::complex<float>>()[14] == std::complex<float>(2, -4));
  CHECK(wide({aot::Array::of(std::vector<std::int64_t>(15, std::int64_t{1} << 40), {3, 5})})[0].as<std::int64_t>()[3] ==
        std::int64_t{1} << 41);
  CHECK(truth({aot::Array(AOT_BOOL, {7})})[0].as<bool>()[6]);
  CHECK(artifact["empty"]({aot::Array(AOT_F32, {0, 3})})[0].size() == 0);
  CHECK(artifact["nothing"]({})[0].as<int>()[4] == 4);

  std::vector<std::thread> threads;  // the first use of functions, at once
  const aot::Artifact fresh(argv[1], runtime);
  int wrong[8] = {0};
  for (int t = 0; t < 8; t++)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; i++) wrong[t] += fresh["twice_f32"]({in})[0].as<float>()[1] != 2;
    });
  for (std::thread &t : threads) t.join();
  for (int w : wrong) CHECK(w == 0);

  const aot::Runtime second(argv[2], {}, std::chrono::seconds(30), 1);  // another device of a client of its own
  CHECK(aot::Artifact(argv[1], second)["twice_f32"]({in})[0].as<float>()[2] == 4);
  CHECK(aot::Artifact(argv[1], second, true)["mlp1"]({aot::Array(AOT_F32, {1, 16})})[0].as<float>()[2] == 0);
  CHECK(thrown([&] { aot::Runtime(argv[2], {}, std::chrono::seconds(30), 99); })->code == AOT_ERROR_PLUGIN);
}
