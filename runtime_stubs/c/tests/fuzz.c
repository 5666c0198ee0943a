/* Mutated artifacts against the reader: no crash, no hang, bounded memory, and every failure says where.
 *
 *     fuzz FILE COUNT [SEED]      COUNT mutations of the file, half of them with checksums made right again
 *     fuzz FILE flips COUNT       single bits flipped inside of members: every one must be refused
 *
 * Build it with -fsanitize=address,undefined. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- memory of the reader is counted ---- */

static size_t live, peak;

static void *counted(void *p, size_t size) {
  if (!p) return NULL;
  live += size;
  if (live > peak) peak = live;
  *(size_t *)p = size;
  return (char *)p + 16;
}

static void *counted_calloc(size_t count, size_t size) { return counted(calloc(1, count * size + 16), count * size); }

__attribute__((noinline)) static void counted_free(void *p) { /* not inlined: aot_call, unused here, allocates otherwise */
  if (!p) return;
  live -= *(size_t *)(void *)((char *)p - 16);
  free((char *)p - 16);
}

static void *counted_realloc(void *p, size_t size) {
  const size_t before = p ? *(size_t *)(void *)((char *)p - 16) : 0;
  void *fresh = counted_calloc(1, size);
  if (p && fresh) memcpy(fresh, p, before < size ? before : size);
  if (fresh) counted_free(p);
  return fresh;
}

#define calloc counted_calloc
#define realloc counted_realloc
#define free counted_free
#include "../aot_runtime.c"
#undef calloc
#undef realloc
#undef free

/* ---- random numbers (xorshift) ---- */

static uint64_t seed;

static uint64_t below(uint64_t n) {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return n ? seed % n : 0;
}

/* ---- what is done with a file ---- */

static const char *current = "start";

static void hang(int signal) {
  (void)signal;
  if (write(2, "hang in ", 8) > 0 && write(2, current, strlen(current)) > 0) abort();
  abort();
}

static void check_error(aot_code code, const aot_error *error) {
  if (code && (error->code != code || !*error->message || strncmp(error->where, "sample", 6))) {
    fprintf(stderr, "an error without place: %d '%s' '%s'\n", code, error->where, error->message);
    abort();
  }
}

/* Everything that needs no plugin.  Returns whether all of it succeeded. */
static bool exercise(const uint8_t *data, size_t size) {
  aot_artifact *a;
  aot_error error;
  char *text = NULL;
  size_t i;
  bool good;
  aot_code code = aot_artifact_open_memory(data, size, "sample", NULL, 0, NULL, &a, &error);
  check_error(code, &error);
  if (code) return false;
  check_error(code = aot_artifact_verify(a, &error), &error);
  good = !code;
  for (i = 0; i < aot_artifact_num_functions(a); i++) {
    const aot_signature *signature;
    const aot_array *in, *out;
    const char *name = aot_artifact_function_name(a, i);
    check_error(code = aot_artifact_signature(a, name, &signature, &error), &error);
    good = good && !code;
    if (!code && (code = aot_artifact_golden(a, name, &in, &out, &error)) != AOT_ERROR_NAME) check_error(code, &error);
    good = good && (!code || code == AOT_ERROR_NAME);
  }
  if (!json_get(a->manifest, "external").at) check_error(code = read_weights(a, &error), &error);
  good = good && !code;
  if (!aot_artifact_explain(a, &text, &error)) counted_free(text);
  aot_artifact_close(a);
  return good;
}

/* The same on a copy of its exact size, within time and memory. */
static bool try_file(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size ? size : 1);
  bool good;
  memcpy(copy, data, size);
  peak = live = 0;
  alarm(5);
  good = exercise(copy, size);
  alarm(0);
  if (live) {
    fprintf(stderr, "%zu bytes leaked\n", live);
    abort();
  }
  if (peak > 2 * size + 32768) {
    fprintf(stderr, "%zu bytes for a file of %zu\n", peak, size);
    abort();
  }
  free(copy);
  return good;
}

/* ---- mutations ---- */

typedef struct file {
  uint8_t *data;
  size_t size, room;
} file;

static void put_number(file *f, size_t at, size_t width) {
  static const uint64_t odd[] = {
      0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF};
  const uint64_t value = below(4) ? odd[below(sizeof odd / sizeof *odd)] : below(f->size + 8);
  if (at + width <= f->size) memcpy(f->data + at, &value, width);
}

/* Text that a JSON reader may stumble over, written over what is there. */
static void put_token(file *f, size_t at) {
  static const char *const tokens[] = {"[[[[[[[[[[[[[[[[",
                                       "{}",
                                       "[]",
                                       "null",
                                       "\"\"",
                                       "-1",
                                       "1e999",
                                       "9223372036854775807",
                                       "\\ud800",
                                       "99999999999999999999",
                                       "\"\\u0000\"",
                                       "true",
                                       "}",
                                       "]",
                                       ",",
                                       ":",
                                       "\xff",
                                       "0.5",
                                       "\"float64\"",
                                       "\"U8\"",
                                       "[0,0]"};
  const char *token = tokens[below(sizeof tokens / sizeof *tokens)];
  const size_t n = strlen(token);
  if (at + n <= f->size) memcpy(f->data + at, token, n);
}

static void move_block(file *f) { /* copy one part over another, or cut one out, or double one */
  const size_t n = (size_t)below(f->size / 4 + 1), from = (size_t)below(f->size - n + 1), to = (size_t)below(f->size - n + 1);
  switch (below(3)) {
    case 0: memmove(f->data + to, f->data + from, n); break;
    case 1: memmove(f->data + from, f->data + from + n, f->size - from - n), f->size -= n; break;
    default:
      if (f->size + n > f->room) return;
      memmove(f->data + from + n, f->data + from, f->size - from), f->size += n;
  }
}

static void mutate(file *f, size_t start, size_t size, bool may_move) {
  size_t k, count = 1 + (size_t)below(6);
  for (k = 0; k < count && size; k++) {
    const size_t at = start + (size_t)below(size);
    switch (below(may_move ? 6 : 4)) {
      case 0: f->data[at] ^= (uint8_t)(1 << below(8)); break;
      case 1: f->data[at] = (uint8_t)below(256); break;
      case 2: put_number(f, at, (size_t)1 << below(4)); break;
      case 3: put_token(f, at); break;
      case 4: move_block(f), size = f->size; break;
      default: f->size = (size_t)below(f->size + 1), size = f->size; break;
    }
    if (start + size > f->size) return;
  }
}

/* Mutate inside of one member and make its checksums right again, so that what reads it is reached. */
static void mutate_member(file *f, const archive *a, const uint8_t *original) {
  const member *m = &a->members[below(a->count)], *manifest = find_member(a, "manifest.json");
  const size_t at = (size_t)(m->data.at - original), text = (size_t)(manifest->data.at - original);
  uint32_t crc;
  size_t i;
  mutate(f, at, m->data.size, false);
  if (m != manifest) {
    char before[65], after[65];
    sha256_hex(original + at, m->data.size, before);
    sha256_hex(f->data + at, m->data.size, after);
    for (i = 0; i + 64 <= manifest->data.size; i++)
      if (!memcmp(f->data + text + i, before, 64)) memcpy(f->data + text + i, after, 64);
  }
  crc = crc32_of(f->data + text, manifest->data.size);
  for (i = 0; i + 4 <= f->size; i++) /* both headers hold it */
    if (!memcmp(original + i, &manifest->crc, 4)) memcpy(f->data + i, &crc, 4);
}

static int flips(const bytes original, const archive *a, long count) {
  file f = {malloc(original.size), original.size, original.size};
  long k, n = 0;
  memcpy(f.data, original.at, original.size);
  for (k = 0; k < count; k++) {
    const member *m = &a->members[below(a->count)];
    size_t at;
    if (!m->data.size) continue;
    at = (size_t)(m->data.at - original.at) + (size_t)below(m->data.size);
    f.data[at] ^= (uint8_t)(1 << (k & 7));
    if (try_file(f.data, f.size)) {
      fprintf(stderr, "bit %ld of byte %zu (%.*s) was not noticed\n", k & 7, at, (int)m->name_size, m->name);
      return 1;
    }
    f.data[at] = original.at[at], n++;
  }
  printf("%ld flips, all refused\n", n);
  free(f.data);
  return 0;
}

int main(int argc, char **argv) {
  bytes original;
  aot_error error;
  archive a = {"sample", {NULL, 0}, NULL, 0, -1};
  arena memory = {NULL};
  file f;
  long k, count, accepted = 0;
  char where[64];
  if (argc < 3 || map_file(argv[1], &original, NULL, &error)) return 2;
  a.file = original;
  signal(SIGALRM, hang);
  seed = 88172645463325252ULL;
  if (read_directory(&a, &memory, &error) || !try_file(original.at, original.size)) {
    fprintf(stderr, "the sample itself is refused\n");
    return 2;
  }
  if (argc > 3 && !strcmp(argv[2], "flips")) {
    const int code = flips(original, &a, atol(argv[3]));
    arena_free(&memory);
    return code;
  }
  count = atol(argv[2]);
  if (argc > 3) seed += (uint64_t)atoll(argv[3]) * 0x9E3779B97F4A7C15ULL;
  f.room = 2 * original.size, f.data = malloc(f.room);
  for (k = 0; k < count; k++) {
    snprintf(where, sizeof where, "mutation %ld\n", k);
    current = where;
    f.size = original.size;
    memcpy(f.data, original.at, original.size);
    if (below(2))
      mutate_member(&f, &a, original.at);
    else
      mutate(&f, 0, f.size, true);
    accepted += try_file(f.data, f.size);
  }
  printf("%ld mutations, %ld of them still valid, the rest refused\n", count, accepted);
  free(f.data);
  arena_free(&memory);
  unmap_file(original);
  return 0;
}
