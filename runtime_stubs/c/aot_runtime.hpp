// aot_runtime.hpp: the C loader in C++17.  Objects own what they open and keep what they need alive; failures are
// aot::Error exceptions; arrays are values.
//
//     aot::Runtime runtime("/opt/pjrt/pjrt_c_api_cpu_plugin.so");
//     aot::Artifact artifact("model.aot", runtime);
//     aot::Function predict = artifact["predict"];
//     std::vector<float> x(8 * 16);
//     std::vector<aot::Array> y = predict({aot::Array::view(x.data(), {8, 16})});
//     for (float v : y[0].as<float>()) ...
//
// Header only, on top of aot_runtime.h, which documents everything.
#ifndef AOT_RUNTIME_HPP
#define AOT_RUNTIME_HPP

#include <chrono>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "aot_runtime.h"

namespace aot {

/// What the C calls report.  what() is the whole text, with the hint.
class Error : public std::runtime_error {
 public:
  explicit Error(const aot_error &e)
      : std::runtime_error(text(e)), code(e.code), where(e.where), message(e.message), hint(e.hint) {}

  const aot_code code;
  const std::string where, message, hint;

 private:
  static std::string text(const aot_error &e) {
    char buffer[sizeof e + 16];
    return aot_error_text(&e, buffer, sizeof buffer);
  }
};

namespace detail {
inline aot_error failed(aot_code code, std::string where, std::string message) {
  aot_error e{};
  e.code = code;
  std::strncpy(e.where, where.c_str(), sizeof e.where - 1);
  std::strncpy(e.message, message.c_str(), sizeof e.message - 1);
  return e;
}
}  // namespace detail

/// A view of elements that something else owns.
template <class T>
class Span {
 public:
  Span(T *data, std::size_t size) : data_(data), size_(size) {}
  T *data() const { return data_; }
  std::size_t size() const { return size_; }
  T *begin() const { return data_; }
  T *end() const { return data_ + size_; }
  T &operator[](std::size_t i) const { return data_[i]; }

 private:
  T *data_;
  std::size_t size_;
};

/// 16-bit floats as their bits; C++17 has no arithmetic for them.
struct float16 {
  std::uint16_t bits;
};
struct bfloat16 {
  std::uint16_t bits;
};

/// The element type of a C++ type.
template <class T>
constexpr aot_dtype dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, bool>)
    return AOT_BOOL;
  else if constexpr (std::is_same_v<U, float>)
    return AOT_F32;
  else if constexpr (std::is_same_v<U, double>)
    return AOT_F64;
  else if constexpr (std::is_same_v<U, float16>)
    return AOT_F16;
  else if constexpr (std::is_same_v<U, bfloat16>)
    return AOT_BF16;
  else if constexpr (std::is_same_v<U, std::complex<float>>)
    return AOT_C64;
  else if constexpr (std::is_same_v<U, std::complex<double>>)
    return AOT_C128;
  else {
    static_assert(std::is_integral_v<U>, "there is no element type for this C++ type");
    constexpr aot_dtype is_signed[] = {AOT_I8, AOT_I16, AOT_I32, AOT_I64}, is_unsigned[] = {AOT_U8, AOT_U16, AOT_U32, AOT_U64};
    constexpr int i = sizeof(U) == 1 ? 0 : sizeof(U) == 2 ? 1 : sizeof(U) == 4 ? 2 : 3;
    return std::is_signed_v<U> ? is_signed[i] : is_unsigned[i];
  }
}

/// A dense row-major array: a value that owns its memory, or a view of the caller's.  Copies of it share the memory.
class Array {
 public:
  Array() = default;

  /// New 64-byte aligned memory, zeroed.
  Array(aot_dtype dtype, std::vector<std::int64_t> shape) : dtype_(dtype), shape_(std::move(shape)) {
    const std::size_t room = (bytes() + 64) / 64 * 64;
    void *data = std::aligned_alloc(64, room);
    if (!data) throw Error(detail::failed(AOT_ERROR_MEMORY, "", "out of memory"));
    std::memset(data, 0, room);
    data_ = std::shared_ptr<void>(data, std::free);
  }

  /// The caller's memory, which must outlive the array.
  template <class T>
  static Array view(T *data, std::vector<std::int64_t> shape) {
    Array a;
    a.dtype_ = dtype_of<T>(), a.shape_ = std::move(shape);
    a.data_ = std::shared_ptr<void>(const_cast<std::remove_const_t<T> *>(data), [](void *) {});
    return a;
  }

  /// A copy of some elements.
  template <class T>
  static Array of(const std::vector<T> &values, std::vector<std::int64_t> shape) {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> holds no bools; fill the span of an Array");
    Array a(dtype_of<T>(), std::move(shape));
    if (a.size() != values.size())
      throw Error(detail::failed(AOT_ERROR_INPUT, "", "the shape does not have as many elements as there are values"));
    if (!values.empty()) std::memcpy(a.data(), values.data(), a.bytes());
    return a;
  }

  aot_dtype dtype() const { return dtype_; }
  const std::vector<std::int64_t> &shape() const { return shape_; }
  void *data() const { return data_.get(); }
  std::size_t bytes() const { return size() * aot_dtype_size(dtype_); }
  std::size_t size() const {
    std::size_t n = 1;
    for (std::int64_t d : shape_) n *= static_cast<std::size_t>(d);
    return n;
  }

  /// The elements.  Throws when T is another type.
  template <class T>
  Span<T> as() const {
    if (dtype_of<T>() != dtype_)
      throw Error(
          detail::failed(AOT_ERROR_INPUT, "",
                         std::string("the array is ") + aot_dtype_name(dtype_) + ", not " + aot_dtype_name(dtype_of<T>())));
    return Span<T>(static_cast<T *>(data()), size());
  }

  aot_array c_array() const { return aot_array{data(), bytes(), dtype_, shape_.size(), shape_.data()}; }

 private:
  aot_dtype dtype_ = AOT_INVALID;
  std::vector<std::int64_t> shape_;
  std::shared_ptr<void> data_;
};

/// A create option of a plugin.
struct Option {
  Option(std::string name, const char *value) : name(std::move(name)), type(AOT_OPTION_STRING), string(value) {}
  Option(std::string name, bool value) : name(std::move(name)), type(AOT_OPTION_BOOL), integer(value) {}
  Option(std::string name, int value) : Option(std::move(name), std::int64_t{value}) {}
  Option(std::string name, std::int64_t value) : name(std::move(name)), type(AOT_OPTION_INT), integer(value) {}
  Option(std::string name, float value) : name(std::move(name)), type(AOT_OPTION_FLOAT), real(value) {}

  std::string name;
  aot_option_type type;
  std::string string;
  std::int64_t integer = 0;
  float real = 0;
};

/// A plugin and its client.  Copies share it.
class Runtime {
 public:
  explicit Runtime(const std::string &plugin, const std::vector<Option> &options = {},
                   std::chrono::milliseconds timeout = std::chrono::seconds(60), std::size_t device = 0) {
    std::vector<aot_option> create;
    for (const Option &o : options) create.push_back({o.name.c_str(), o.type, o.string.c_str(), o.integer, o.real});
    aot_runtime_options wanted{};
    wanted.plugin = plugin.c_str();
    wanted.create_options = create.empty() ? nullptr : create.data(), wanted.num_create_options = create.size();
    wanted.timeout_ms = static_cast<unsigned>(timeout.count()), wanted.device = device;
    aot_runtime *made = nullptr;
    aot_error e;
    if (aot_runtime_open(&wanted, &made, &e)) throw Error(e);
    runtime_ = std::shared_ptr<aot_runtime>(made, aot_runtime_close);
  }

  std::string platform() const { return aot_runtime_platform(get()); }
  std::size_t num_devices() const { return aot_runtime_num_devices(get()); }
  aot_runtime *get() const { return runtime_.get(); }

 private:
  friend class Artifact;
  std::shared_ptr<aot_runtime> runtime_;
};

/// A function that is ready to be called, from any number of threads.  Keeps its artifact alive.
class Function {
 public:
  const aot_signature &signature() const { return *aot_function_signature(function_); }
  std::string target() const { return aot_function_target(function_); }
  std::string reason() const { return aot_function_reason(function_); }

  /// Run on one array for each input, in flat order.
  std::vector<Array> operator()(const std::vector<Array> &inputs) const {
    std::vector<Array> outputs;
    for (std::size_t i = 0; i < signature().num_outputs; i++) {
      const aot_leaf &leaf = signature().outputs[i];
      outputs.emplace_back(leaf.dtype, std::vector<std::int64_t>(leaf.dims, leaf.dims + leaf.rank));
    }
    run(inputs, outputs);
    return outputs;
  }

  /// The same into memory that is there; the arrays must have the types of the results.
  void run(const std::vector<Array> &inputs, const std::vector<Array> &outputs) const {
    std::vector<aot_array> in, out;
    for (const Array &a : inputs) in.push_back(a.c_array());
    for (std::size_t i = 0; i < outputs.size(); i++) {
      out.push_back(outputs[i].c_array());
      check(outputs[i], i);
    }
    aot_error e;
    if (aot_call(function_, in.data(), in.size(), out.data(), out.size(), &e)) throw Error(e);
  }

 private:
  friend class Artifact;
  Function(std::shared_ptr<aot_artifact> artifact, const aot_function *function)
      : artifact_(std::move(artifact)), function_(function) {}

  void check(const Array &a, std::size_t i) const {
    if (i >= signature().num_outputs) return;  // aot_call tells the numbers
    const aot_leaf &leaf = signature().outputs[i];
    if (!a.data() || a.dtype() != leaf.dtype || a.shape() != std::vector<std::int64_t>(leaf.dims, leaf.dims + leaf.rank))
      throw Error(detail::failed(AOT_ERROR_INPUT, leaf.name, "the array for this result has another type"));
  }

  std::shared_ptr<aot_artifact> artifact_;
  const aot_function *function_;
};

/// An open artifact.  Copies share it.
class Artifact {
 public:
  /// Without a runtime, to look at it: nothing can be run.
  explicit Artifact(const std::string &path) { open(path, nullptr, 0, ""); }
  Artifact(const std::string &path, const Runtime &runtime, bool strict = false, const std::string &weights = "") {
    open(path, runtime.runtime_, strict ? AOT_STRICT : 0, weights);
  }

  std::vector<std::string> functions() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < aot_artifact_num_functions(get()); i++)
      names.emplace_back(aot_artifact_function_name(get(), i));
    return names;
  }

  Function operator[](const std::string &name) const {
    const aot_function *f = nullptr;
    aot_error e;
    if (aot_artifact_function(get(), name.c_str(), &f, &e)) throw Error(e);
    return Function(artifact_, f);
  }

  void verify() const {
    aot_error e;
    if (aot_artifact_verify(get(), &e)) throw Error(e);
  }

  std::string explain() const {
    char *text = nullptr;
    aot_error e;
    if (aot_artifact_explain(get(), &text, &e)) throw Error(e);
    std::unique_ptr<char, void (*)(void *)> owned(text, aot_free);
    return owned.get();
  }

  aot_artifact *get() const { return artifact_.get(); }

 private:
  void open(const std::string &path, std::shared_ptr<aot_runtime> runtime, unsigned flags, const std::string &weights) {
    aot_artifact *made = nullptr;
    aot_error e;
    if (aot_artifact_open(path.c_str(), runtime.get(), flags, weights.empty() ? nullptr : weights.c_str(), &made, &e))
      throw Error(e);
    // The runtime ends after the artifact, because the deleter holds it.
    artifact_ = std::shared_ptr<aot_artifact>(made, [runtime](aot_artifact *a) { aot_artifact_close(a); });
  }

  std::shared_ptr<aot_artifact> artifact_;
};

}  // namespace aot
#endif
