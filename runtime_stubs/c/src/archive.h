/* The container: a zip of stored members in a mapped file, read strictly.  Whatever a writer of artifacts does not write
 * is refused: compression, encryption, several disks, names that leave a folder, links, duplicates, overlaps. */
#ifndef AOT_ARCHIVE_H
#define AOT_ARCHIVE_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "json.h"
#include "sha256.h"

typedef struct bytes {
  const uint8_t *at;
  size_t size;
} bytes;

typedef struct member {
  const char *name; /* not terminated: a part of the mapped file */
  size_t name_size;
  bytes data;
  uint64_t start; /* of its local header */
  uint32_t crc;
  bool verified;
} member;

typedef struct archive {
  const char *path; /* for messages */
  bytes file;
  member *members;
  size_t count;
  int fd; /* of the file, or -1 where it is memory */
} archive;

static uint32_t le16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static uint32_t le32(const uint8_t *p) { return le16(p) | le16(p + 2) << 16; }
static uint64_t le64(const uint8_t *p) { return le32(p) | (uint64_t)le32(p + 4) << 32; }

/* ---- files ---- */

/* keep: NULL, or where to put the open file, which is then the caller's. */
static aot_code map_file(const char *path, bytes *out, int *keep, aot_error *error) {
  struct stat info;
  void *data;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT)
    return fail(error, AOT_ERROR_FILE, path, "artifacts are written by `aot compile`", "no such file");
  if (fd < 0 || fstat(fd, &info) || !S_ISREG(info.st_mode)) {
    fail(error, AOT_ERROR_FILE, path, "", "cannot be read: %s", fd < 0 ? strerror(errno) : "not a regular file");
    if (fd >= 0) close(fd);
    return AOT_ERROR_FILE;
  }
  if (info.st_size == 0) {
    close(fd);
    return fail(error, AOT_ERROR_FORMAT, path, AGAIN, "the file is empty");
  }
  data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) fail(error, AOT_ERROR_FILE, path, "", "cannot be mapped: %s", strerror(errno));
  if (keep && data != MAP_FAILED)
    *keep = fd;
  else
    close(fd);
  if (data == MAP_FAILED) return AOT_ERROR_FILE;
  out->at = data, out->size = (size_t)info.st_size;
  return AOT_OK;
}

static void unmap_file(bytes file) {
  if (file.at) munmap((void *)(uintptr_t)file.at, file.size);
}

/* ---- the directory ---- */

typedef struct directory {
  uint64_t at, end, count;
} directory;

static aot_code damaged(const archive *a, aot_error *error, const char *what) {
  return fail(error, AOT_ERROR_FORMAT, a->path, AGAIN, "damaged: its directory cannot be read (%s)", what);
}

/* Where the central directory is: the end record must close the file. */
static aot_code find_directory(const archive *a, directory *d, aot_error *error) {
  const uint8_t *file = a->file.at, *end = NULL;
  const size_t size = a->file.size, least = size > 65557 ? size - 65557 : 0;
  size_t at;
  for (at = size; at-- > least && !end;)
    if (size - at >= 22 && !memcmp(file + at, "PK\5\6", 4) && size - at - 22 == le16(file + at + 20)) end = file + at;
  if (!end && size >= 2 && !memcmp(file, "PK", 2))
    return fail(error, AOT_ERROR_FORMAT, a->path, AGAIN, "truncated: the file ends before its directory");
  if (!end) return fail(error, AOT_ERROR_FORMAT, a->path, "", "not an .aot artifact (not a zip file)");
  if (le16(end + 4) || le16(end + 6) || le16(end + 8) != le16(end + 10)) return damaged(a, error, "several disks");
  d->count = le16(end + 10), d->at = le32(end + 16), d->end = d->at + le32(end + 12);
  at = (size_t)(end - file);
  if (at >= 20 && !memcmp(end - 20, "PK\6\7", 4)) {
    const uint64_t record = le64(end - 12);
    if (record > at - 20 || at - 20 - record < 56 || memcmp(file + record, "PK\6\6", 4)) return damaged(a, error, "end record");
    d->count = le64(file + record + 32), d->at = le64(file + record + 48);
    d->end = d->at + le64(file + record + 40);
    at = (size_t)record;
  }
  if (d->end != at || d->at > d->end || d->count > (d->end - d->at) / 46) return damaged(a, error, "its place");
  return AOT_OK;
}

/* Replace the 0xFFFFFFFF among the values by what the zip64 field says. */
static bool widen(const uint8_t *extra, size_t size, uint64_t *values[3]) {
  size_t at, i, n;
  for (at = 0; at + 4 <= size; at += 4 + n) {
    n = le16(extra + at + 2);
    if (n > size - at - 4) return false;
    if (le16(extra + at) == 1) {
      size_t used = 0;
      for (i = 0; i < 3; i++)
        if (values[i] && *values[i] == 0xFFFFFFFF) {
          if (used + 8 > n) return false;
          *values[i] = le64(extra + at + 4 + used);
          used += 8;
        }
    }
  }
  return at == size;
}

static bool safe_name(const char *name, size_t size) {
  size_t i, start = 0;
  if (!size || name[0] == '/') return false;
  for (i = 0; i <= size; i++) {
    if (i < size && ((unsigned char)name[i] < 0x20 || name[i] == '\\' || name[i] == 0x7F)) return false;
    if (i < size && name[i] != '/') continue;
    if (i == start || (i - start == 1 && name[start] == '.') || (i - start == 2 && !memcmp(name + start, "..", 2)))
      return false;
    start = i + 1;
  }
  return true;
}

/* The local header at `m->start` must say the same as the directory. */
static const char *check_local(const archive *a, const uint8_t *central, member *m, uint64_t size, uint64_t limit) {
  const uint8_t *local = a->file.at + m->start;
  uint64_t here = 0, packed = 0, *values[3] = {&here, &packed, NULL}, data;
  if (m->start > limit || limit - m->start < 30 || memcmp(local, "PK\3\4", 4)) return "no local header";
  here = le32(local + 22), packed = le32(local + 18);
  if (le16(local + 26) != m->name_size) return "two names";
  data = m->start + 30 + m->name_size + le16(local + 28);
  if (data > limit || size > limit - data) return "it ends after the file";
  if (memcmp(local + 30, m->name, m->name_size)) return "two names";
  if (memcmp(local + 6, central + 8, 12)) return "headers that differ"; /* flags, method, time, date, CRC-32 */
  if (!widen(local + 30 + m->name_size, le16(local + 28), values)) return "its extra field";
  if (here != size || packed != size) return "two sizes";
  m->data.at = a->file.at + data, m->data.size = (size_t)size;
  return NULL;
}

/* One entry of the directory; returns what is wrong with it or NULL. */
static const char *read_entry(const archive *a, const uint8_t *p, member *m, uint64_t limit) {
  const uint32_t mode = le32(p + 38) >> 28;
  uint64_t size = le32(p + 24), packed = le32(p + 20), *values[3] = {&size, &packed, NULL};
  m->start = le32(p + 42);
  values[2] = &m->start;
  if (!safe_name(m->name, m->name_size)) return "a name that is not allowed";
  if (le16(p + 10)) return "it is compressed; do not repack artifacts";
  if (le16(p + 8) & ~0x0800u) return "flags that are not allowed";
  if (mode && mode != 8) return "it is not a regular file";
  if (le16(p + 34) || le16(p + 32)) return "a comment, or another disk";
  if (!widen(p + 46 + m->name_size, le16(p + 30), values)) return "its extra field";
  if (size != packed) return "two sizes";
  m->crc = le32(p + 16);
  return check_local(a, p, m, size, limit);
}

static int by_start(const void *x, const void *y) {
  const member *a = x, *b = y;
  return (a->start > b->start) - (a->start < b->start);
}

static int compare_names(const char *a, size_t n, const char *b, size_t m) {
  const int order = memcmp(a, b, n < m ? n : m);
  return order ? order : (n > m) - (n < m);
}

static int by_name(const void *x, const void *y) {
  const member *a = x, *b = y;
  return compare_names(a->name, a->name_size, b->name, b->name_size);
}

static aot_code bad_member(const archive *a, const member *m, aot_error *error, const char *what) {
  const place p = at_member(a->path, m->name, m->name_size);
  return fail(error, AOT_ERROR_FORMAT, p.text, AGAIN, "damaged: %s", what);
}

static aot_code check_disjoint(archive *a, uint64_t limit, aot_error *error) {
  size_t i;
  qsort(a->members, a->count, sizeof *a->members, by_start);
  for (i = 0; i < a->count; i++) {
    const uint64_t end = (uint64_t)(a->members[i].data.at - a->file.at) + a->members[i].data.size;
    if (end > (i + 1 < a->count ? a->members[i + 1].start : limit))
      return bad_member(a, &a->members[i], error, "it overlaps the next");
  }
  qsort(a->members, a->count, sizeof *a->members, by_name);
  for (i = 1; i < a->count; i++)
    if (!by_name(&a->members[i - 1], &a->members[i])) return bad_member(a, &a->members[i], error, "it is there twice");
  return AOT_OK;
}

/* Find every member.  `a->path` and `a->file` are set; nothing is read but headers. */
static aot_code read_directory(archive *a, arena *memory, aot_error *error) {
  directory d = {0, 0, 0};
  const uint8_t *p, *end;
  aot_code code = find_directory(a, &d, error);
  if (code) return code;
  a->members = arena_new(memory, (size_t)d.count + 1, sizeof *a->members);
  if (!a->members) return no_memory(error);
  for (p = a->file.at + d.at, end = a->file.at + d.end; a->count < d.count; a->count++) {
    member *m = &a->members[a->count];
    const char *why;
    size_t size;
    if (end - p < 46 || memcmp(p, "PK\1\2", 4)) return damaged(a, error, "an entry");
    size = 46 + (size_t)le16(p + 28) + le16(p + 30) + le16(p + 32);
    if (size > (size_t)(end - p)) return damaged(a, error, "an entry");
    m->name = (const char *)p + 46, m->name_size = le16(p + 28);
    if ((why = read_entry(a, p, m, d.at)) != NULL) return bad_member(a, m, error, why);
    p += size;
  }
  if (p != end) return damaged(a, error, "its size");
  return check_disjoint(a, d.at, error);
}

/* ---- members ---- */

static member *find_member(const archive *a, const char *name) {
  member wanted;
  memset(&wanted, 0, sizeof wanted);
  wanted.name = name, wanted.name_size = strlen(name);
  return a->count ? bsearch(&wanted, a->members, a->count, sizeof wanted, by_name) : NULL;
}

typedef struct hashing {
  bytes data;
  off_t start;          /* of the data in the file */
  int fd;               /* of the file, or -1 */
  uint64_t chunk;       /* bytes of data that have a hash of their own */
  const json *expected; /* those hashes */
  size_t first, step, count;
  bool whole;
} hashing;

enum { PIECE = 1 << 20 }; /* bytes read at once: they stay in the processor's cache until they are hashed */

/* The sha256 of some bytes of a file.  buffer: PIECE bytes.  False where they cannot be read. */
static bool hash_file(int fd, off_t at, size_t size, uint8_t *buffer, char hex[65]) {
  uint32_t state[8];
  size_t left = size, n, got;
  memcpy(state, sha256_start, sizeof state);
  for (;;) {
    n = left < PIECE ? left : PIECE;
    for (got = 0; got < n;) {
      const ssize_t more = pread(fd, buffer + got, n - got, at);
      if (more <= 0) return false;
      got += (size_t)more, at += more;
    }
    if (left <= PIECE) break;
    sha256_blocks(state, buffer, PIECE / 64);
    left -= PIECE;
  }
  sha256_end(state, buffer, n, size, hex);
  return true;
}

/* Every step-th chunk from the first on: threads side by side read a file in its order.  Read, where that can be, not
 * touched in the mapping: page faults in several threads make a disk slow. */
static void *hash_chunks(void *argument) {
  hashing *h = argument;
  uint8_t *buffer = h->fd >= 0 ? malloc(PIECE) : NULL;
  char hex[65];
  size_t i;
  for (i = h->first; h->whole && i < h->count; i += h->step) {
    const size_t at = i * (size_t)h->chunk, left = h->data.size - at, size = left < h->chunk ? left : (size_t)h->chunk;
    if (buffer)
      h->whole = hash_file(h->fd, h->start + (off_t)at, size, buffer, hex);
    else
      sha256_hex(h->data.at + at, size, hex);
    h->whole = h->whole && json_equals(h->expected[i], hex, 64);
  }
  free(buffer);
  return NULL;
}

/* task: what all threads have in common. */
static bool hash_in_threads(hashing task) {
  enum { MOST = 16 };
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  const size_t wanted = processors < 1 ? 1 : processors > MOST ? MOST : (size_t)processors;
  hashing parts[MOST];
  pthread_t threads[MOST];
  bool started[MOST], whole = true;
  size_t i;
  task.step = wanted, task.whole = true;
  for (i = 0; i < wanted; i++) {
    task.first = i, parts[i] = task;
    started[i] = i + 1 < wanted && !pthread_create(&threads[i], NULL, hash_chunks, &parts[i]);
    if (!started[i]) hash_chunks(&parts[i]);
  }
  for (i = 0; i < wanted; i++) {
    if (started[i]) pthread_join(threads[i], NULL);
    whole = whole && parts[i].whole;
  }
  return whole;
}

/* Whether a member is as its entry says; by the hashes of its chunks, where it has any. */
static bool is_whole(const archive *a, bytes data, json entry) {
  const json chunks = json_get(entry, "chunks"), list = json_get(chunks, "sha256");
  json_iter it = json_each(list);
  json key, *expected;
  hashing task;
  size_t i = 0;
  bool whole;
  char hex[65];
  memset(&task, 0, sizeof task);
  task.data = data, task.fd = a->fd, task.start = (off_t)(data.at - a->file.at), task.count = json_count(list);
  if (json_size(json_get(chunks, "size"), &task.chunk) && task.chunk &&
      (expected = malloc((task.count + 1) * sizeof *expected))) {
    while (json_next(&it, &key, &expected[i])) i++;
    task.expected = expected;
    whole = task.count == data.size / task.chunk + (data.size % task.chunk != 0) && hash_in_threads(task);
    free(expected);
    return whole;
  }
  sha256_hex(data.at, data.size, hex);
  return json_equals(json_get(entry, "sha256"), hex, 64);
}

/* The bytes of a member, checked once against its entry in the manifest's `members`. */
static aot_code verified_member(archive *a, json members, const char *name, bytes *out, aot_error *error) {
  const place p = at_member(a->path, name, strlen(name));
  member *m = find_member(a, name);
  const json entry = json_get(members, name);
  uint64_t size;
  if (!m || !entry.at) return fail(error, AOT_ERROR_FORMAT, p.text, AGAIN, "the member is missing");
  if (!m->verified) {
    if (!json_size(json_get(entry, "size"), &size) || size != m->data.size)
      return fail(error, AOT_ERROR_FORMAT, p.text, AGAIN, "damaged: it does not have the size in the manifest");
    if (!is_whole(a, m->data, entry))
      return fail(error, AOT_ERROR_FORMAT, p.text, AGAIN, "damaged: it does not match its sha256");
    m->verified = true;
  }
  *out = m->data;
  return AOT_OK;
}

#endif
