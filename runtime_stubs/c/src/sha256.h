/* SHA-256 (FIPS 180-4), with the CPU's instructions where it has them; and the CRC-32 of zip files. */
#ifndef AOT_SHA256_H
#define AOT_SHA256_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && defined(__x86_64__)
#define AOT_SHA_NI 1
#include <cpuid.h>
#include <immintrin.h>
#endif

static const uint32_t sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha256_blocks_portable(uint32_t state[8], const uint8_t *data, size_t blocks) {
  for (; blocks; blocks--, data += 64) {
    uint32_t w[64], s[8];
    int i;
    for (i = 0; i < 16; i++)
      w[i] = (uint32_t)data[4 * i] << 24 | (uint32_t)data[4 * i + 1] << 16 | (uint32_t)data[4 * i + 2] << 8 | data[4 * i + 3];
    for (i = 16; i < 64; i++) {
      uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (i = 0; i < 64; i++) {
      uint32_t t1 = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) +
                    sha256_k[i] + w[i];
      uint32_t t2 = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      memmove(s + 1, s, 7 * sizeof *s);
      s[4] += t1;
      s[0] = t1 + t2;
    }
    for (i = 0; i < 8; i++) state[i] += s[i];
  }
}

#ifdef AOT_SHA_NI
/* Four rounds at a time.  The instructions hold the state as ABEF and CDGH. */
__attribute__((target("sha,sse4.1,ssse3"))) static void sha256_blocks_ni(uint32_t state[8], const uint8_t *data,
                                                                         size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  __m128i t = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)state), 0xB1);
  __m128i u = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(state + 4)), 0x1B);
  __m128i abef = _mm_alignr_epi8(t, u, 8), cdgh = _mm_blend_epi16(u, t, 0xF0);
  for (; blocks; blocks--, data += 64) {
    __m128i before_abef = abef, before_cdgh = cdgh, w[4];
    int i;
#pragma GCC unroll 16 /* so that w stays in registers */
    for (i = 0; i < 16; i++) {
      __m128i m, *next = &w[i & 3];
      if (i < 4) {
        *next = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(data + 16 * i)), swap);
      } else { /* the message schedule, four words at once */
        __m128i last = w[(i + 3) & 3], shifted = _mm_alignr_epi8(last, w[(i + 2) & 3], 4);
        *next = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(*next, w[(i + 1) & 3]), shifted), last);
      }
      m = _mm_add_epi32(*next, _mm_loadu_si128((const __m128i *)(const void *)(sha256_k + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, m);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(m, 0x0E));
    }
    abef = _mm_add_epi32(abef, before_abef);
    cdgh = _mm_add_epi32(cdgh, before_cdgh);
  }
  t = _mm_shuffle_epi32(abef, 0x1B);
  u = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(t, u, 0xF0));
  _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(u, t, 8));
}

static int has_sha_ni(void) {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1) && __get_cpuid(1, &a, &b, &c, &d) && (c >> 19 & 1);
}
#endif

static void sha256_blocks(uint32_t state[8], const uint8_t *data, size_t blocks) {
#ifdef AOT_SHA_NI
  if (has_sha_ni()) {
    sha256_blocks_ni(state, data, blocks);
    return;
  }
#endif
  sha256_blocks_portable(state, data, blocks);
}

static const uint32_t sha256_start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/* Take the last `size` of `total` bytes, and write the sha256 of all as 64 lower-case hexadecimal digits. */
static void sha256_end(uint32_t state[8], const void *data, size_t size, uint64_t total, char hex[65]) {
  uint8_t tail[128] = {0};
  size_t whole = size / 64, rest = size % 64, padded = rest < 56 ? 64 : 128, i;
  if (whole) sha256_blocks(state, data, whole);
  if (rest) memcpy(tail, (const uint8_t *)data + 64 * whole, rest);
  tail[rest] = 0x80;
  for (i = 0; i < 8; i++) tail[padded - 1 - i] = (uint8_t)(total * 8 >> 8 * i);
  sha256_blocks(state, tail, padded / 64);
  for (i = 0; i < 64; i++) hex[i] = "0123456789abcdef"[state[i / 8] >> (28 - 4 * (i % 8)) & 15];
  hex[64] = 0;
}

/* The sha256 of some bytes as 64 lower-case hexadecimal digits. */
static void sha256_hex(const void *data, size_t size, char hex[65]) {
  uint32_t state[8];
  memcpy(state, sha256_start, sizeof state);
  sha256_end(state, data, size, size, hex);
}

static uint32_t crc32_of(const uint8_t *data, size_t size) {
  uint32_t crc = 0xFFFFFFFF, table[256], i;
  for (i = 0; i < 256; i++) {
    uint32_t c = i;
    int k;
    for (k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0);
    table[i] = c;
  }
  for (; size; size--, data++) crc = crc >> 8 ^ table[(crc ^ *data) & 255];
  return ~crc;
}

#endif
