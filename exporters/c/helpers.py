"""Helper functions of exported programs: only those that a program uses are written, each after what it needs.

A name `aot_NAME` or `aot_NAME_TYPE` in generated code stands for a row here.  In a text `T` is the C type of TYPE, `U` the
unsigned type of the same width, `N` its number of bits, `S` the suffix of functions of libm, `R` the type of real parts.
"""
from __future__ import annotations

import re
from collections.abc import Iterable

from .types import BRIEF, PARTS, CType, unsigned

#: helpers of one name
PLAIN: dict[str, str] = {
    "aot_from_bf16": """
static inline float aot_from_bf16(uint16_t x) { return aot_bits_u32_f32((uint32_t)x << 16); }""",
    "aot_to_bf16": """
static inline uint16_t aot_to_bf16(float x) {
  const uint32_t bits = aot_bits_f32_u32(x);
  if (x != x) return (uint16_t)((bits >> 16) | 0x40);
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16); /* to the nearest, ties to even */
}""",
    "aot_round_bf16": """
static inline float aot_round_bf16(float x) { return aot_from_bf16(aot_to_bf16(x)); }""",
    "aot_to_bf16_of_double": """
static inline uint16_t aot_to_bf16_of_double(double x) { return aot_to_bf16(aot_odd(x)); }""",
    "aot_from_f16": """
static inline float aot_from_f16(uint16_t x) {
  const uint32_t sign = (uint32_t)(x & 0x8000) << 16, size = x & 0x7fff;
  if (size >= 0x7c00) return aot_bits_u32_f32(sign | 0x7f800000 | (size & 0x3ff) << 13);
  if (size >= 0x400) return aot_bits_u32_f32(sign | ((size << 13) + 0x38000000));
  return (sign ? -1.0f : 1.0f) * (float)size * 5.9604645e-08f; /* 2^-24 */
}""",
    "aot_to_f16": """
static inline uint16_t aot_to_f16(float x) {
  const uint32_t bits = aot_bits_f32_u32(x), sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
  if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00 | ((size >> 13) & 0x1ff));
  if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65,520 and more */
  if (size >= 0x38800000) return (uint16_t)(sign | ((size - 0x38000000 + 0xfff + ((size >> 13) & 1)) >> 13));
  return (uint16_t)(sign | (uint32_t)rintf(aot_bits_u32_f32(size) * 16777216.0f)); /* below 2^-14: multiples of 2^-24 */
}""",
    "aot_round_f16": """
static inline float aot_round_f16(float x) { return aot_from_f16(aot_to_f16(x)); }""",
    "aot_to_f16_of_double": """
static inline uint16_t aot_to_f16_of_double(double x) { return aot_to_f16(aot_odd(x)); }""",
    "aot_odd": """
/* A float that rounds to fewer bits as x does: where bits are lost, the last one is set. */
static inline float aot_odd(double x) {
  const float y = (float)x;
  uint32_t bits;
  if (x != x || y - y != 0 || (double)y == x) return y;
  bits = aot_bits_f32_u32(y);
  if (fabs((double)y) > fabs(x)) bits--;
  return aot_bits_u32_f32(bits | 1);
}""",
    "aot_bits_f32_u32": """
static inline uint32_t aot_bits_f32_u32(float x) { uint32_t y; memcpy(&y, &x, sizeof y); return y; }""",
    "aot_bits_u32_f32": """
static inline float aot_bits_u32_f32(uint32_t x) { float y; memcpy(&y, &x, sizeof y); return y; }""",
    "aot_bits_f64_u64": """
static inline uint64_t aot_bits_f64_u64(double x) { uint64_t y; memcpy(&y, &x, sizeof y); return y; }""",
    "aot_bits_u64_f64": """
static inline double aot_bits_u64_f64(uint64_t x) { double y; memcpy(&y, &x, sizeof y); return y; }""",
    "aot_bits_f32_i32": """
static inline int32_t aot_bits_f32_i32(float x) { int32_t y; memcpy(&y, &x, sizeof y); return y; }""",
    "aot_bits_i32_f32": """
static inline float aot_bits_i32_f32(int32_t x) { float y; memcpy(&y, &x, sizeof y); return y; }""",
    "aot_bits_f64_i64": """
static inline int64_t aot_bits_f64_i64(double x) { int64_t y; memcpy(&y, &x, sizeof y); return y; }""",
    "aot_bits_i64_f64": """
static inline double aot_bits_i64_f64(int64_t x) { double y; memcpy(&y, &x, sizeof y); return y; }""",
    "aot_bits_c64_f64": """
static inline double aot_bits_c64_f64(float complex x) { double y; memcpy(&y, &x, sizeof y); return y; }""",
    "aot_exp_f32": """
/* exp without branches, so that loops over it become vector instructions; right to 2 units of the last place.
 * x = n ln 2 + r; the powers of 2 are made of bits, in two factors because their exponents reach from -150 to 128. */
static inline float aot_exp_f32(float x) {
  const float t = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x;
  const float n = (t * 1.44269504f + 12582912.0f) - 12582912.0f; /* the nearest whole number, where t is one */
  const float r = (t - n * 0.693359375f) + n * 2.12194440e-4f;
  const float p = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
                   1.6666665459e-1f) * r + 5.0000001201e-1f;
  const int32_t k = n == n ? (int32_t)n : 0, half = k >> 1;
  const float y = (p * r) * r + r + 1.0f;
  return y * aot_bits_i32_f32((half + 127) * 8388608) * aot_bits_i32_f32((k - half + 127) * 8388608);
}""",
    "aot_tanh_f32": """
/* tanh without branches: a polynomial near 0, (e^2x - 1) / (e^2x + 1) elsewhere. */
static inline float aot_tanh_f32(float x) {
  const float z = x * x, far = 1.0f - 2.0f / (aot_exp_f32(2.0f * (x < 0 ? -x : x)) + 1.0f);
  const float near = ((((-5.70498872745e-3f * z + 2.06390887954e-2f) * z - 5.37397155531e-2f) * z + 1.33314422036e-1f) * z -
                      3.33332819422e-1f) * z * x + x;
  return z == 0 ? x : z < 0.390625f ? near : x < 0 ? -far : far;
}""",
    "aot_log_f32": """
/* log without branches; right to 2 units of the last place.  x = 2^n (1 + f) for f from sqrt(1/2) - 1 to sqrt(2) - 1. */
static inline float aot_log_f32(float x) {
  const uint32_t b = aot_bits_f32_u32(x), tiny = b < 0x00800000, bits = aot_bits_f32_u32(x * (tiny ? 8388608.0f : 1.0f));
  const uint32_t n = (bits + 0x004afb0d) >> 23;
  const float f = aot_bits_u32_f32(bits - (n - 127) * 0x800000) - 1.0f, z = f * f;
  const float e = (float)((int32_t)n - (tiny ? 150 : 127));
  const float high = (((6.91345396e-2f * f - 1.17891934e-1f) * f + 1.18734469e-1f) * f - 1.23844728e-1f) * f + 1.42186158e-1f;
  const float p = (((high * f - 1.66692431e-1f) * f + 2.00022282e-1f) * f - 2.49999867e-1f) * f + 3.33333104e-1f;
  const float y = f + (f * z * p - 0.5f * z - e * 2.12194440e-4f) + e * 0.693359375f;
  /* added to a finite y: nothing where x is positive and finite, else -infinity for 0, infinity for infinity, or NaN */
  const uint32_t special = b << 1 == 0 ? 0xff800000 : b == 0x7f800000 ? b : 0x7fc00000;
  return y + aot_bits_u32_f32(b - 1 < 0x7f7fffff ? 0 : special);
}""",
    "aot_erf_f32": """
/* erf without branches: a polynomial near 0, 1 - exp(polynomial) elsewhere. */
static inline float aot_erf_f32(float x) {
  const float a = x < 0 ? -x : x, b = a > 4.0f ? 4.0f : a, z = x * x;
  const float low = ((8.57463315e-5f * z - 8.18983513e-4f) * z + 5.2050855e-3f) * z - 2.68609961e-2f;
  const float near = (((low * z + 1.12837238e-1f) * z - 3.76126356e-1f) * z + 1.12837917f) * x;
  const float high = (((1.23564232e-6f * b + 4.45423113e-6f) * b - 3.38512275e-4f) * b + 3.86162003e-3f) * b - 2.45087334e-2f;
  const float q = (((high * b + 1.07524573e-1f) * b + 6.33919369e-1f) * b + 1.1292719f) * b - 1.30399214e-4f;
  const float far = 1.0f - aot_exp_f32(-q);
  return z < 0.8f ? near : x < 0 ? -far : far;
}""",
    "aot_erfc_f32": """
/* erfc without branches: exp(-x^2) times a polynomial of 1 / (1 + x / 2).  The square of h is exact. */
static inline float aot_erfc_f32(float x) {
  const float a = x < 0 ? -x : x, b = a > 11.0f ? 11.0f : a, t = 1.0f / (1.0f + 0.5f * b);
  const float h = aot_bits_u32_f32(aot_bits_f32_u32(b) & 0xfffff000u);
  const float high = (((1.05324399e-2f * t - 1.13972973e-1f) * t + 4.07716312e-1f) * t - 6.42661759e-1f) * t + 3.99389956e-1f;
  const float p = (((high * t - 8.70973689e-2f) * t + 2.21866252e-1f) * t + 2.39384382e-1f) * t + 2.82774329e-1f;
  const float y = aot_exp_f32(-h * h) * (aot_exp_f32(-(b - h) * (b + h)) * t * (p * t + 2.82068408e-1f));
  return x < 0 ? 2.0f - y : y;
}""",
    "aot_order_f32": """
/* Integers in the total order of floats: -NaN, -infinity, .., -0, 0, .., infinity, NaN. */
static inline int32_t aot_order_f32(float x) {
  const int32_t bits = aot_bits_f32_i32(x);
  return bits < 0 ? bits ^ INT32_MAX : bits;
}""",
    "aot_order_f64": """
/* Integers in the total order of floats: -NaN, -infinity, .., -0, 0, .., infinity, NaN. */
static inline int64_t aot_order_f64(double x) {
  const int64_t bits = aot_bits_f64_i64(x);
  return bits < 0 ? bits ^ INT64_MAX : bits;
}""",
    "aot_precision_f32": """
static inline float aot_precision_f32(float x, int exponent, int mantissa) {
  return (float)aot_precision_f64(x, exponent, mantissa);
}""",
    "aot_precision_f64": """
/* x with so many bits of exponent and mantissa: what is too large becomes infinite, what is too small zero. */
static inline double aot_precision_f64(double x, int exponent, int mantissa) {
  const int highest = (1 << (exponent - 1)) - 1;
  int e;
  double y;
  if (x == 0 || x - x != 0) return x;
  y = frexp(x, &e);
  y = ldexp(rint(ldexp(y, mantissa + 1)), e - mantissa - 1);
  frexp(y, &e);
  if (e - 1 > highest) return copysign((double)INFINITY, x);
  return e - 1 < 1 - highest ? copysign(0.0, x) : y;
}""",
    "aot_threefry": """
/* Threefry-2x32 with 20 rounds. */
static void aot_threefry(const uint32_t key[2], uint32_t x[2]) {
  static const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t ks[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDAu};
  int i, j;
  x[0] += ks[0], x[1] += ks[1];
  for (i = 0; i < 5; i++) {
    for (j = 0; j < 4; j++) {
      const int r = rotations[i % 2][j];
      x[0] += x[1];
      x[1] = (x[1] << r | x[1] >> (32 - r)) ^ x[0];
    }
    x[0] += ks[(i + 1) % 3], x[1] += ks[(i + 2) % 3] + (uint32_t)(i + 1);
  }
}""",
    "aot_philox": """
/* Philox-4x32 with 10 rounds. */
static void aot_philox(const uint32_t key[2], uint32_t x[4]) {
  uint32_t k0 = key[0], k1 = key[1];
  int i;
  for (i = 0; i < 10; i++) {
    const uint64_t p = (uint64_t)x[0] * 0xD2511F53u, q = (uint64_t)x[2] * 0xCD9E8D57u;
    const uint32_t y = (uint32_t)(q >> 32) ^ x[1] ^ k0, z = (uint32_t)(p >> 32) ^ x[3] ^ k1;
    x[0] = y, x[1] = (uint32_t)q, x[2] = z, x[3] = (uint32_t)p;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
}""",
}

#: helpers of one name for each type: kinds of types -> text
TYPED: dict[str, dict[str, str]] = {
    "div": {"i": """
static inline T aot_div_$(T x, T y) {
  if (y == 0) return -1;
  if (y == -1) return (T)(0 - (U)x);
  return (T)(x / y);
}""", "u": """
static inline T aot_div_$(T x, T y) {
  if (y == 0) return (T)~(T)0;
  return (T)(x / y);
}""", "c": """
/* Scaled, so that nothing between overflows. */
static inline T aot_div_$(T x, T y) {
  const R a = crealS(x), b = cimagS(x), c = crealS(y), d = cimagS(y);
  if (isinf(c) || isinf(d) || (c == 0 && d == 0)) return x / y;
  if (fabsS(c) >= fabsS(d)) {
    const R r = d / c, n = c + d * r;
    return aot_complex_$((a + b * r) / n, (b - a * r) / n);
  } else {
    const R r = c / d, n = c * r + d;
    return aot_complex_$((a * r + b) / n, (b * r - a) / n);
  }
}"""},
    "rem": {"i": """
static inline T aot_rem_$(T x, T y) {
  if (y == 0) return x;
  if (y == -1) return 0;
  return (T)(x % y);
}""", "u": """
static inline T aot_rem_$(T x, T y) {
  if (y == 0) return x;
  return (T)(x % y);
}"""},
    "pow": {"i": """
static inline T aot_pow_$(T x, T n) {
  U power = 1, base = (U)x;
  if (n < 0) return x == 1 ? 1 : x == -1 ? (n & 1 ? -1 : 1) : 0;
  for (; n; n = (T)(n >> 1), base = (U)((uint64_t)base * base))
    if (n & 1) power = (U)((uint64_t)power * base);
  return (T)power;
}""", "u": """
static inline T aot_pow_$(T x, T n) {
  T power = 1;
  for (; n; n = (T)(n >> 1), x = (T)((uint64_t)x * x))
    if (n & 1) power = (T)((uint64_t)power * x);
  return power;
}""", "c": """
static inline T aot_pow_$(T x, T y) {
  if (y == 0) return 1;
  if (x == 0) return crealS(y) > 0 && cimagS(y) == 0 ? 0 : cpowS(x, y);
  return cexpS(y * clogS(x));
}"""},
    "max": {"iu": """
static inline T aot_max_$(T x, T y) { return x > y ? x : y; }""", "f": """
static inline T aot_max_$(T x, T y) { return (x > y) | (x != x) ? x : y; }""", "c": """
static inline T aot_max_$(T x, T y) { return aot_compare_$(x, y) >= 0 ? x : y; }"""},
    "min": {"iu": """
static inline T aot_min_$(T x, T y) { return x < y ? x : y; }""", "f": """
static inline T aot_min_$(T x, T y) { return (x < y) | (x != x) ? x : y; }""", "c": """
static inline T aot_min_$(T x, T y) { return aot_compare_$(x, y) <= 0 ? x : y; }"""},
    "compare": {"c": """
/* By the real parts, then by the imaginary ones. */
static inline int aot_compare_$(T x, T y) {
  const R a = crealS(x), b = crealS(y), c = cimagS(x), d = cimagS(y);
  return a != b ? (a > b) - (a < b) : (c > d) - (c < d);
}"""},
    "sign": {"c": """
static inline T aot_sign_$(T x) {
  const R size = cabsS(x);
  return x == 0 ? x : aot_complex_$(crealS(x) / size, cimagS(x) / size);
}"""},
    "complex": {"c": """
static inline T aot_complex_$(R x, R y) {
  R parts[2];
  T z;
  parts[0] = x, parts[1] = y;
  memcpy(&z, parts, sizeof z);
  return z;
}"""},
    "fft2": {"f": """
/* A step of a Fourier transform of s neighbours: from x as [2][m][s] to y as [m][2][s]; the imaginary parts are `size` behind
 * the real ones; w: powers of the roots of unity, m real and m imaginary parts for each part of x but the first. */
static void aot_fft2_$(const T *restrict x, T *restrict y, ptrdiff_t m, ptrdiff_t s, ptrdiff_t size, const T *w) {
  const ptrdiff_t d = m * s;
  for (ptrdiff_t p = 0; p < m; p++, x += s, y += 2 * s) {
    const T wr = w[p], wi = w[m + p];
    for (ptrdiff_t q = 0; q < s; q++) {
      const T ar = x[q], ai = x[q + size], br = x[q + d], bi = x[q + d + size], cr = ar - br, ci = ai - bi;
      y[q] = ar + br, y[q + size] = ai + bi;
      y[q + s] = cr * wr - ci * wi, y[q + s + size] = cr * wi + ci * wr;
    }
  }
}"""},
    "fft3": {"f": """
/* The same for three parts. */
static void aot_fft3_$(const T *restrict x, T *restrict y, ptrdiff_t m, ptrdiff_t s, ptrdiff_t size, const T *w) {
  const T half_root = (T)0.86602540378443864676;
  const ptrdiff_t d = m * s;
  for (ptrdiff_t p = 0; p < m; p++, x += s, y += 3 * s) {
    const T ur = w[p], ui = w[m + p], vr = w[2 * m + p], vi = w[3 * m + p];
    for (ptrdiff_t q = 0; q < s; q++) {
      const T ar = x[q], ai = x[q + size], br = x[q + d], bi = x[q + d + size], cr = x[q + 2 * d], ci = x[q + 2 * d + size];
      const T er = br + cr, ei = bi + ci, fr = (bi - ci) * half_root, fi = (cr - br) * half_root;
      const T gr = ar - er / 2, gi = ai - ei / 2, hr = gr + fr, hi = gi + fi, kr = gr - fr, ki = gi - fi;
      y[q] = ar + er, y[q + size] = ai + ei;
      y[q + s] = hr * ur - hi * ui, y[q + s + size] = hr * ui + hi * ur;
      y[q + 2 * s] = kr * vr - ki * vi, y[q + 2 * s + size] = kr * vi + ki * vr;
    }
  }
}"""},
    "fft4": {"f": """
/* A step of a Fourier transform of s neighbours: from x as [4][m][s] to y as [m][4][s]; the imaginary parts are `size` behind
 * the real ones; w: powers of the roots of unity, m real and m imaginary parts for each part of x but the first. */
static void aot_fft4_$(const T *restrict x, T *restrict y, ptrdiff_t m, ptrdiff_t s, ptrdiff_t size, const T *w) {
  const ptrdiff_t d = m * s;
  for (ptrdiff_t p = 0; p < m; p++, x += s, y += 4 * s) {
    const T ur = w[p], ui = w[m + p], vr = w[2 * m + p], vi = w[3 * m + p], zr = w[4 * m + p], zi = w[5 * m + p];
    for (ptrdiff_t q = 0; q < s; q++) {
      const T ar = x[q] + x[q + 2 * d], ai = x[q + size] + x[q + 2 * d + size];
      const T br = x[q] - x[q + 2 * d], bi = x[q + size] - x[q + 2 * d + size];
      const T cr = x[q + d] + x[q + 3 * d], ci = x[q + d + size] + x[q + 3 * d + size];
      const T er = x[q + d + size] - x[q + 3 * d + size], ei = x[q + 3 * d] - x[q + d];
      const T fr = br + er, fi = bi + ei, gr = ar - cr, gi = ai - ci, hr = br - er, hi = bi - ei;
      y[q] = ar + cr, y[q + size] = ai + ci;
      y[q + s] = fr * ur - fi * ui, y[q + s + size] = fr * ui + fi * ur;
      y[q + 2 * s] = gr * vr - gi * vi, y[q + 2 * s + size] = gr * vi + gi * vr;
      y[q + 3 * s] = hr * zr - hi * zi, y[q + 3 * s + size] = hr * zi + hi * zr;
    }
  }
}"""},
    "fft": {"f": """
/* A step of a Fourier transform of s neighbours: from x as [n][m][s] to y as [m][n][s]; the imaginary parts are `size` behind
 * the real ones; w: n roots of unity, real and imaginary parts, then powers of them, m of each for each part of x. */
static void aot_fft_$(const T *restrict x, T *restrict y, ptrdiff_t n, ptrdiff_t m, ptrdiff_t s, ptrdiff_t size, const T *w) {
  const T *power = w + 2 * n;
  for (ptrdiff_t p = 0; p < m; p++)
    for (ptrdiff_t j = 0; j < n; j++) {
      const T wr = power[2 * j * m + p], wi = power[(2 * j + 1) * m + p];
      T *real = y + (p * n + j) * s, *imaginary = real + size;
      for (ptrdiff_t q = 0; q < s; q++) real[q] = imaginary[q] = 0;
      for (ptrdiff_t k = 0; k < n; k++) {
        const T rr = w[j * k % n], ri = w[n + j * k % n], ur = rr * wr - ri * wi, ui = rr * wi + ri * wr;
        const T *part = x + (k * m + p) * s;
        for (ptrdiff_t q = 0; q < s; q++) {
          real[q] += part[q] * ur - part[q + size] * ui;
          imaginary[q] += part[q] * ui + part[q + size] * ur;
        }
      }
    }
}"""},
    "expm1": {"c": """
static inline T aot_expm1_$(T z) {
  const R x = crealS(z), y = cimagS(z), half = sinS(y / 2), grown = expm1S(x);
  return aot_complex_$(grown - 2 * (grown + 1) * half * half, (grown + 1) * sinS(y));
}"""},
    "log1p": {"c": """
static inline T aot_log1p_$(T z) {
  const R x = crealS(z), y = cimagS(z), size = hypotS(1 + x, y);
  /* near 1 the logarithm of the absolute value comes from its distance to 1 */
  const R near = fabsS(x) < (R)0.5 && fabsS(y) < (R)0.5;
  return aot_complex_$(near ? log1pS(x * (2 + x) + y * y) / 2 : logS(size), atan2S(y, 1 + x));
}"""},
    "atan2": {"c": """
static inline T aot_atan2_$(T y, T x) {
  const T root = csqrtS(x * x + y * y), w = clogS(aot_div_$(x + aot_complex_$(-cimagS(y), crealS(y)), root));
  return aot_complex_$(cimagS(w), -crealS(w));
}"""},
    "shl": {"iu": """
static inline T aot_shl_$(T x, T n) {
  if ((U)n >= N) return 0;
  return (T)(U)((U)x << n);
}"""},
    "shr": {"iu": """
static inline T aot_shr_$(T x, T n) {
  if ((U)n >= N) return 0;
  return (T)(U)((U)x >> n);
}"""},
    "sar": {"iu": """
static inline T aot_sar_$(T x, T n) {
  const int by = (U)n < N ? (int)n : N - 1;
  const U bits = (U)x, sign = (U)(0 - (U)(bits >> (N - 1)));
  return (T)((U)((U)(bits ^ sign) >> by) ^ sign);
}"""},
    "popcnt": {"iu": """
static inline T aot_popcnt_$(T x) {
  U bits = (U)x;
  int n = 0;
  for (; bits; bits = (U)(bits & (bits - 1))) n++;
  return (T)n;
}"""},
    "clz": {"iu": """
static inline T aot_clz_$(T x) {
  U bits = (U)x;
  int n = N;
  for (; bits; bits = (U)(bits >> 1)) n--;
  return (T)n;
}"""},
}

for _brief, _suffix in (("f32", "F"), ("f64", "")):
    PLAIN[f"aot_fma_{_brief}"] = f"""
/* x y + z, in one step where the machine has one. */
#ifdef FP_FAST_FMA{_suffix}
#define aot_fma_{_brief}(x, y, z) fma{_suffix.lower()}(x, y, z)
#else
#define aot_fma_{_brief}(x, y, z) ((x) * (y) + (z))
#endif"""

#: conversions of floats: a helper for each type of integers
_OF_FLOAT = """
/* Toward zero; what does not fit becomes the nearest number, NaN becomes 0. */
static inline T aot_$_of_%NAME(%TYPE x) {
  if (x != x) return 0;
  if (x >= %HIGH) return %MAX;
  if (x <= %LOW) return %MIN;
  return (T)x;
}"""

_WORD = re.compile(r"\baot_\w+")


def text_of(name: str) -> str | None:
    """The definition of a helper, None for a name that is none."""
    if name in PLAIN:
        return PLAIN[name]
    if found := re.fullmatch(r"aot_([iu]\d+)_of_(float|double)", name):
        return _of_float(BRIEF[found[1]], found[2])
    base, _, brief = name.removeprefix("aot_").rpartition("_")
    t = BRIEF.get(brief)
    if t is None:
        return None
    return next((_filled(text, t) for kinds, text in TYPED.get(base, {}).items() if t.kind in kinds), None)


def _filled(text: str, t: CType) -> str:
    part = PARTS.get(t.brief, t)
    words = {"T": t.value, "N": str(t.bits), "R": part.value, "U": unsigned(t).value if t.kind in "iu" else ""}
    text = re.sub(r"\b[TNRU]\b", lambda m: words[m[0]], text.replace("$", t.brief))
    return re.sub(r"\b(c?(?:real|imag|abs|fabs|sin|cos|exp|expm1|log|log1p|hypot|sqrt|pow|atan2|fabs|cimag|creal))S\b",
                  lambda m: m[1] + ("f" if part.brief == "f32" else ""), text)


def _of_float(t: CType, source: str) -> str:
    low = 0 if t.kind == "u" else -(2 ** (t.bits - 1))
    high = 2 ** (t.bits - (t.kind == "i"))
    suffix = "f" if source == "float" else ""
    prefix = "UINT" if t.kind == "u" else "INT"
    words = {"%NAME": source, "%TYPE": source, "%HIGH": f"{high}.0{suffix}", "%MAX": f"{prefix}{t.bits}_MAX",
             "%LOW": f"{low}.0{suffix}", "%MIN": "0" if t.kind == "u" else f"INT{t.bits}_MIN"}
    text = _OF_FLOAT
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return _filled(text, t)


def needed(code: str, more: Iterable[str] = ()) -> list[str]:
    """The definitions of all helpers that a text uses, each after those that it uses itself."""
    order: dict[str, str] = {}

    def visit(text: str, inside: str) -> None:
        for name in sorted(set(_WORD.findall(text))):
            definition = text_of(name)
            if name != inside and name not in order and definition is not None:
                visit(definition, name)
                order[name] = definition
    visit(code, "")
    return list(order.values())
