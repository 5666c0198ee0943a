/* Reading and writing numpy's .npy files. */
#ifndef AOT_NPY_H
#define AOT_NPY_H

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../aot_runtime.h"

typedef struct npy {
  aot_array array;
  int64_t dims[64];
  void *file;
  size_t file_size;
} npy;

/* numpy's name of each type; ml_dtypes' types are saved as raw bytes. */
static const char *const npy_names[AOT_NUM_DTYPES] = {"",    "|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2",
                                                      "<u4", "<u8", "<f2", "<V2", "<f4", "<f8", "<c8", "<c16",
                                                      "<V1", "<V1", "<V1", "<V1", "<V1", "<V1", "<V1"};

/* A private, writable mapping: the data of .npy files is 64-byte aligned in it. */
static unsigned char *npy_map(const char *path, size_t *size) {
  struct stat info;
  void *data = MAP_FAILED;
  const int fd = open(path, O_RDONLY);
  if (fd >= 0 && !fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size > 0) {
    *size = (size_t)info.st_size;
    data = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  }
  if (fd >= 0) close(fd);
  return data == MAP_FAILED ? NULL : data;
}

static void npy_free(void *file, size_t size) {
  if (file) munmap(file, size);
}

/* The type of a descr like "<f4".  wanted: what raw bytes stand for. */
static aot_dtype npy_dtype(const char *name, size_t size, aot_dtype wanted) {
  int i;
  if (size > 1 && name[1] == 'V' && (size_t)atoi(name + 2) == aot_dtype_size(wanted) && npy_names[wanted][1] == 'V')
    return wanted;
  for (i = 1; i < AOT_NUM_DTYPES; i++)
    if (strlen(npy_names[i]) == size && !memcmp(npy_names[i] + 1, name + 1, size - 1) && name[1] != 'V' &&
        (*name != '>' || npy_names[i][0] == '|'))
      return (aot_dtype)i;
  return AOT_INVALID;
}

/* The value behind 'key': in the header, or NULL. */
static const char *npy_field(const char *header, const char *key) {
  const char *p = strstr(header, key);
  return p ? p + strlen(key) + strspn(p + strlen(key), " ") : NULL;
}

static const char *npy_shape(npy *out, const char *p) {
  if (*p++ != '(') return "its shape is no tuple";
  while (*p != ')') {
    char *end;
    const long long d = strtoll(p, &end, 10);
    if (end == p || d < 0 || out->array.rank == 64) return "its shape";
    out->dims[out->array.rank++] = d;
    p = end + strspn(end, ", ");
  }
  return NULL;
}

/* Read a file; returns what is wrong with it or NULL.  wanted: see npy_dtype. */
static const char *npy_read(const char *path, aot_dtype wanted, npy *out) {
  size_t size = 0, at, header_size, i;
  const char *descr, *order, *shape, *quote, *why;
  unsigned char *data;
  char *header;
  uint64_t count = 1;
  memset(out, 0, sizeof *out);
  data = out->file = npy_map(path, &size);
  out->file_size = size;
  if (!data) return "it cannot be read";
  if (size < 12 || memcmp(data, "\x93NUMPY", 6)) return "it is no .npy file";
  at = data[6] == 1 ? 10 : 12;
  header_size = data[8] | (size_t)data[9] << 8 | (at == 12 ? (size_t)data[10] << 16 | (size_t)data[11] << 24 : 0);
  if (header_size > size - at || !header_size) return "it is truncated";
  header = (char *)data + at;
  header[header_size - 1] = 0;
  descr = npy_field(header, "'descr':"), order = npy_field(header, "'fortran_order':"), shape = npy_field(header, "'shape':");
  if (!descr || *descr != '\'' || !(quote = strchr(descr + 1, '\'')) || !order || !shape)
    return "its header is not that of a plain array";
  out->array.dtype = npy_dtype(descr + 1, (size_t)(quote - descr - 1), wanted);
  if (out->array.dtype == AOT_INVALID) return "its dtype is not supported (big-endian, or not a number)";
  if ((why = npy_shape(out, shape)) != NULL) return why;
  if (!strncmp(order, "True", 4) && out->array.rank > 1) return "it is in Fortran order; save numpy.ascontiguousarray(x)";
  for (i = 0; i < out->array.rank; i++) {
    if (out->dims[i] && count > (uint64_t)size / (uint64_t)out->dims[i] + 1) return "it is truncated";
    count *= (uint64_t)out->dims[i];
  }
  out->array.dims = out->dims, out->array.data = data + at + header_size;
  out->array.bytes = (size_t)count * aot_dtype_size(out->array.dtype);
  return out->array.bytes > size - at - header_size ? "it is truncated" : NULL;
}

/* Write a file under a temporary name and rename it; false when that fails. */
static bool npy_write(const char *path, const aot_array *a) {
  char header[2048], temporary[4096];
  size_t i,
      n = (size_t)snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (", npy_names[a->dtype]),
      total;
  unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0, 0};
  FILE *f;
  bool ok;
  for (i = 0; i < a->rank; i++)
    n += (size_t)snprintf(header + n, sizeof header - n, "%" PRId64 "%s", a->dims[i],
                          i + 1 < a->rank ? ", "
                          : a->rank == 1  ? ","
                                          : "");
  n += (size_t)snprintf(header + n, sizeof header - n, "), }");
  total = (10 + n + 1 + 63) / 64 * 64 - 10;
  start[8] = total & 255, start[9] = (unsigned char)(total >> 8);
  snprintf(temporary, sizeof temporary, "%s.tmp", path);
  if (!(f = fopen(temporary, "wb"))) return false;
  fwrite(start, 1, sizeof start, f);
  fprintf(f, "%s%*s\n", header, (int)(total - n - 1), "");
  if (a->bytes) fwrite(a->data, 1, a->bytes, f);
  ok = !ferror(f);
  ok = !fclose(f) && ok;
  if (ok && !rename(temporary, path)) return true;
  remove(temporary);
  return false;
}

/* ---- for people ---- */

static double npy_half(uint16_t h) {
  const int exponent = h >> 10 & 31, fraction = h & 1023;
  double value = exponent ? 1 + fraction / 1024.0 : fraction / 1024.0;
  int e = exponent ? exponent - 15 : -14;
  if (exponent == 31) value = fraction ? strtod("nan", NULL) : strtod("inf", NULL), e = 0;
  for (; e > 0; e--) value *= 2;
  for (; e < 0; e++) value /= 2;
  return h >> 15 ? -value : value;
}

/* Element i as a number; the imaginary part goes to *imaginary. */
static double npy_value(const aot_array *a, size_t i, double *imaginary) {
  const char *p = (const char *)a->data + i * aot_dtype_size(a->dtype);
  union {
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    float f[2];
    double d[2];
  } v;
  memset(&v, 0, sizeof v);
  memcpy(&v, p, aot_dtype_size(a->dtype));
  *imaginary = 0;
  switch (a->dtype) {
    case AOT_I8: return v.i8;
    case AOT_I16: return v.i16;
    case AOT_I32: return v.i32;
    case AOT_I64: return (double)v.i64;
    case AOT_U16: return v.u16;
    case AOT_U32: return v.u32;
    case AOT_U64: return (double)v.u64;
    case AOT_F16: return npy_half(v.u16);
    case AOT_BF16: v.u32 = (uint32_t)v.u16 << 16; return v.f[0];
    case AOT_F32: return v.f[0];
    case AOT_F64: return v.d[0];
    case AOT_C64: *imaginary = v.f[1]; return v.f[0];
    case AOT_C128: *imaginary = v.d[1]; return v.d[0];
    default: return v.u8;
  }
}

static void npy_print(const char *name, const aot_array *a) {
  const size_t item = aot_dtype_size(a->dtype), count = item ? a->bytes / item : 0;
  const bool complex = a->dtype == AOT_C64 || a->dtype == AOT_C128;
  size_t i;
  printf("%s: %s[", name, aot_dtype_name(a->dtype));
  for (i = 0; i < a->rank; i++) printf("%s%" PRId64, i ? "," : "", a->dims[i]);
  printf("]");
  for (i = 0; i < count && i < 16; i++) {
    double imaginary, real = npy_value(a, i, &imaginary);
    printf(complex ? " %.9g%+.9gj" : " %.9g", real, imaginary);
  }
  printf("%s\n", count > 16 ? " ..." : "");
}

#endif
