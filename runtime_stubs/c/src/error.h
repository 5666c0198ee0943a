/* Errors as values, and memory that lives as long as an artifact. */
#ifndef AOT_ERROR_H
#define AOT_ERROR_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../aot_runtime.h"

#define AGAIN "copy it again, or build it again with `aot compile`"

/* Fill in an error, which may be NULL, and return its code: `return fail(error, code, where, hint, "...")`. */
#if defined(__GNUC__)
__attribute__((format(printf, 5, 6)))
#endif
static aot_code fail(aot_error *error, aot_code code, const char *where, const char *hint, const char *format, ...) {
  va_list list;
  if (error == NULL) return code;
  error->code = code;
  snprintf(error->where, sizeof error->where, "%s", where);
  snprintf(error->hint, sizeof error->hint, "%s", hint);
  va_start(list, format);
  vsnprintf(error->message, sizeof error->message, format, list);
  va_end(list);
  return code;
}

static aot_code no_memory(aot_error *error) { return fail(error, AOT_ERROR_MEMORY, "", "", "out of memory"); }

/* "path: member" for messages; control characters of a hostile name do not reach a terminal. */
typedef struct place {
  char text[256];
} place;

static place at_member(const char *path, const char *member, size_t size) {
  place p;
  char *c;
  snprintf(p.text, sizeof p.text, "%.150s: %.*s", path, (int)(size < 100 ? size : 100), member);
  for (c = p.text; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = '?';
  return p;
}

/* ---- an arena: blocks that are freed together ---- */

typedef struct block {
  struct block *next;
} block;
typedef struct arena {
  block *first;
} arena;

/* `count` zeroed elements, or NULL. */
static void *arena_new(arena *a, size_t count, size_t size) {
  const size_t header = 64;
  block *b;
  if (size && count > (SIZE_MAX - header) / size) return NULL;
  b = calloc(1, header + count * size);
  if (b == NULL) return NULL;
  b->next = a->first;
  a->first = b;
  return (char *)b + header;
}

static char *arena_copy(arena *a, const char *text, size_t size) {
  char *copy = arena_new(a, size + 1, 1);
  if (copy) memcpy(copy, text, size);
  return copy;
}

static void arena_free(arena *a) {
  while (a->first) {
    block *next = a->first->next;
    free(a->first);
    a->first = next;
  }
}

/* ---- text that grows ---- */

typedef struct text {
  char *data;
  size_t size, room;
  bool failed;
} text;

/* Append bytes; there is always a zero after the last one. */
static void text_put(text *t, const void *data, size_t size) {
  if (t->failed) return;
  if (t->size + size + 1 > t->room) {
    const size_t room = 2 * t->room + size + 64;
    char *more = realloc(t->data, room);
    if (more == NULL) {
      t->failed = true;
      return;
    }
    t->data = more, t->room = room;
  }
  memcpy(t->data + t->size, data, size);
  t->size += size;
  t->data[t->size] = 0;
}

/* Append formatted text, at most 2 KiB at once. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void text_add(text *t, const char *format, ...) {
  char piece[2048];
  va_list list;
  va_start(list, format);
  vsnprintf(piece, sizeof piece, format, list);
  va_end(list);
  text_put(t, piece, strlen(piece));
}

#endif
