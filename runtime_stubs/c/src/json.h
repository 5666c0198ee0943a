/* JSON without memory: a text is checked once, then values are slices of it that are walked in place. */
#ifndef AOT_JSON_H
#define AOT_JSON_H

#include "error.h"

enum { JSON_DEPTH = 512 }; /* a pytree of 100 levels needs 300 */

typedef struct json {
  const char *at, *end;
} json; /* the text of one value; at is NULL for a value that is missing */

/* ---- checking ---- */

static const char *json_space(const char *p, const char *end) {
  while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')) p++;
  return p;
}

static int json_hex(const char *p, const char *end) { /* four hexadecimal digits, or -1 */
  int value = 0, i;
  if (end - p < 4) return -1;
  for (i = 0; i < 4; i++) {
    const char c = p[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

/* The end of one UTF-8 sequence above 0x7F, or NULL. */
static const char *json_utf8(const char *p, const char *end) {
  const unsigned char lead = (unsigned char)*p;
  const int more = lead >= 0xF0 && lead < 0xF5 ? 3 : lead >= 0xE0 && lead < 0xF0 ? 2 : lead >= 0xC2 && lead < 0xE0 ? 1 : 0;
  unsigned value = lead & (0x3Fu >> more);
  int i;
  if (!more || end - p <= more) return NULL;
  for (i = 1; i <= more; i++) {
    if ((p[i] & 0xC0) != 0x80) return NULL;
    value = value << 6 | (p[i] & 0x3F);
  }
  if ((more == 2 && (value < 0x800 || (value >= 0xD800 && value < 0xE000))) ||
      (more == 3 && (value < 0x10000 || value > 0x10FFFF)))
    return NULL;
  return p + 1 + more;
}

static const char *json_check_string(const char *p, const char *end) { /* p: after the first quote */
  while (p && p < end && *p != '"') {
    const unsigned char c = (unsigned char)*p;
    if (c < 0x20) return NULL;
    if (c >= 0x80) {
      p = json_utf8(p, end);
    } else if (c != '\\') {
      p++;
    } else if (++p < end && *p == 'u') {
      if (json_hex(p + 1, end) < 0) return NULL;
      p += 5;
    } else {
      if (p >= end || !*p || !strchr("\"\\/bfnrt", *p)) return NULL;
      p++;
    }
  }
  return p && p < end ? p + 1 : NULL;
}

static const char *json_digits(const char *p, const char *end) {
  const char *start = p;
  while (p < end && *p >= '0' && *p <= '9') p++;
  return p > start ? p : NULL;
}

static const char *json_check_number(const char *p, const char *end) {
  const char *first;
  if (p < end && *p == '-') p++;
  first = p;
  p = json_digits(p, end);
  if (!p || (*first == '0' && p > first + 1)) return NULL;
  if (p < end && *p == '.' && !(p = json_digits(p + 1, end))) return NULL;
  if (p < end && (*p == 'e' || *p == 'E')) {
    p++;
    if (p < end && (*p == '+' || *p == '-')) p++;
    p = json_digits(p, end);
  }
  return p;
}

static const char *json_check_value(const char *p, const char *end, int depth);

static const char *json_check_items(const char *p, const char *end, int depth, char close) {
  p = json_space(p, end);
  if (p < end && *p == close) return p + 1;
  while (p < end) {
    if (close == '}') {
      if (*p != '"' || !(p = json_check_string(p + 1, end))) return NULL;
      p = json_space(p, end);
      if (p >= end || *p++ != ':') return NULL;
    }
    if (!(p = json_check_value(json_space(p, end), end, depth))) return NULL;
    p = json_space(p, end);
    if (p < end && *p == close) return p + 1;
    if (p >= end || *p != ',') return NULL;
    p = json_space(p + 1, end);
  }
  return NULL;
}

/* The end of a value, or NULL where the text is not JSON or nested too deeply. */
static const char *json_check_value(const char *p, const char *end, int depth) {
  static const char *const words[] = {"true", "false", "null"};
  size_t i;
  if (p >= end || depth >= JSON_DEPTH) return NULL;
  if (*p == '{' || *p == '[') return json_check_items(p + 1, end, depth + 1, *p == '{' ? '}' : ']');
  if (*p == '"') return json_check_string(p + 1, end);
  for (i = 0; i < 3; i++) {
    const size_t n = strlen(words[i]);
    if ((size_t)(end - p) >= n && !memcmp(p, words[i], n)) return p + n;
  }
  return json_check_number(p, end);
}

/* The value of a whole text; its `at` is NULL when it is not JSON. */
static json json_parse(const char *data, size_t size) {
  json value = {json_space(data, data + size), NULL}, none = {NULL, NULL};
  value.end = json_check_value(value.at, data + size, 0);
  return value.end && json_space(value.end, data + size) == data + size ? value : none;
}

/* ---- walking: every text below has been checked ---- */

static bool json_is(json v, char first) { return v.at && *v.at == first; }

static const char *json_skip_string(const char *p) { /* p: at the first quote */
  for (p++; *p != '"'; p++)
    if (*p == '\\') p++;
  return p + 1;
}

static const char *json_skip(const char *p, const char *end) {
  int depth = 0;
  do {
    if (*p == '"') {
      p = json_skip_string(p);
      continue;
    }
    if (*p == '{' || *p == '[') depth++;
    if (*p == '}' || *p == ']') depth--;
    p++;
    if (!depth)
      while (p < end && !strchr(",]} \n\t\r:\"[{", *p)) p++; /* the rest of a number or word */
  } while (depth);
  return p;
}

typedef struct json_iter {
  const char *at, *end;
  bool object;
} json_iter;

/* The items of an object or array; nothing for anything else. */
static json_iter json_each(json v) {
  const bool object = json_is(v, '{'), any = object || json_is(v, '[');
  json_iter it;
  it.at = any ? v.at + 1 : NULL, it.end = any ? v.end : NULL, it.object = object;
  return it;
}

/* The next item.  key: its `at` is NULL in arrays. */
static bool json_next(json_iter *it, json *key, json *value) {
  const char *p = it->at;
  if (!p) return false;
  p = json_space(p, it->end);
  if (*p == ',') p = json_space(p + 1, it->end);
  if (*p == '}' || *p == ']') return false;
  key->at = NULL;
  if (it->object) {
    key->at = p;
    p = key->end = json_skip_string(p);
    p = json_space(json_space(p, it->end) + 1, it->end);
  }
  value->at = p;
  it->at = value->end = json_skip(p, it->end);
  return true;
}

static size_t json_count(json v) {
  json_iter it = json_each(v);
  json key, value;
  size_t n = 0;
  while (json_next(&it, &key, &value)) n++;
  return n;
}

/* ---- strings and numbers ---- */

static char *json_put_utf8(char *out, unsigned c) {
  if (c < 0x80) {
    *out++ = (char)c;
    return out;
  }
  if (c < 0x800) {
    *out++ = (char)(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      *out++ = (char)(0xE0 | c >> 12);
    } else {
      *out++ = (char)(0xF0 | c >> 18);
      *out++ = (char)(0x80 | (c >> 12 & 63));
    }
    *out++ = (char)(0x80 | (c >> 6 & 63));
  }
  *out++ = (char)(0x80 | (c & 63));
  return out;
}

/* One character of a string, with its escape, to `out` (at most 4 bytes; never more than its text). */
static char *json_unescape(const char **from, const char *end, char *out) {
  static const char escapes[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
  const char *p = *from;
  unsigned c;
  if (*p != '\\') {
    *from = p + 1;
    *out = *p;
    return out + 1;
  }
  if (p[1] != 'u') {
    *from = p + 2;
    *out = meaning[strchr(escapes, p[1]) - escapes];
    return out + 1;
  }
  c = (unsigned)json_hex(p + 2, end);
  p += 6;
  if (c >= 0xD800 && c < 0xDC00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
    const int low = json_hex(p + 2, end);
    if (low >= 0xDC00 && low < 0xE000) {
      c = 0x10000 + ((c - 0xD800) << 10) + ((unsigned)low - 0xDC00);
      p += 6;
    }
  }
  *from = p;
  return json_put_utf8(out, c);
}

static bool json_equals(json v, const char *text, size_t size) {
  const char *p = v.at + 1, *end;
  if (!json_is(v, '"')) return false;
  for (end = v.end - 1; p < end;) {
    char c[4];
    const size_t n = (size_t)(json_unescape(&p, end, c) - c);
    if (n > size || memcmp(c, text, n)) return false;
    text += n, size -= n;
  }
  return !size;
}

/* A copy of a string that belongs to the arena; NULL when it is no string, holds a zero, or memory is short. */
static char *json_string(arena *a, json v) {
  const char *p, *end;
  char *copy, *out;
  if (!json_is(v, '"')) return NULL;
  copy = out = arena_new(a, (size_t)(v.end - v.at), 1);
  if (!copy) return NULL;
  for (p = v.at + 1, end = v.end - 1; p < end;) out = json_unescape(&p, end, out);
  return strlen(copy) == (size_t)(out - copy) ? copy : NULL;
}

/* A field of an object, the last of that name; missing for anything else. */
static json json_get(json object, const char *name) {
  json_iter it = json_each(object);
  json key, value, found = {NULL, NULL};
  const size_t size = strlen(name);
  if (!it.object) return found;
  while (json_next(&it, &key, &value))
    if (json_equals(key, name, size)) found = value;
  return found;
}

static bool json_int(json v, int64_t *out) {
  const char *p = v.at;
  const bool minus = p && *p == '-';
  uint64_t value = 0;
  if (!p || !((*p >= '0' && *p <= '9') || minus)) return false;
  for (p += minus; p < v.end; p++) {
    if (*p < '0' || *p > '9' || value > (uint64_t)INT64_MAX / 10 - 1) return false;
    value = value * 10 + (uint64_t)(*p - '0');
  }
  *out = minus ? -(int64_t)value : (int64_t)value;
  return true;
}

/* A whole number from 0 on: sizes, offsets, indices. */
static bool json_size(json v, uint64_t *out) {
  int64_t value;
  if (!json_int(v, &value) || value < 0) return false;
  *out = (uint64_t)value;
  return true;
}

#endif
