/* This machine and this plugin file: what decides whether an executable may be tried here. */
#ifndef AOT_HOST_H
#define AOT_HOST_H

#include <sys/utsname.h>

#include "archive.h"

#ifndef AOT_CPUINFO
#define AOT_CPUINFO "/proc/cpuinfo"
#endif

/* The CPU's features as Linux names them, a space before and after each; NULL where they cannot be read. */
static char *cpu_features(arena *memory) {
  char line[16384], *found = NULL;
  FILE *f = fopen(AOT_CPUINFO, "re");
  while (f && !found && fgets(line, sizeof line, f)) {
    char *colon = strchr(line, ':'), *end = strchr(line, '\n');
    if (!colon || !end || (strncmp(line, "flags", 5) && strncmp(line, "Features", 8))) continue;
    *end = ' ', *colon = ' ';
    found = arena_copy(memory, colon, (size_t)(end + 1 - colon));
  }
  if (f) fclose(f);
  return found;
}

static bool has_feature(const char *features, const char *name) {
  const size_t n = strlen(name);
  const char *p = features;
  while ((p = strstr(p, name)) != NULL) {
    if (p[-1] == ' ' && p[n] == ' ') return true;
    p += n;
  }
  return false;
}

/* Why code for this machine and these features must not run here, appended to `why`; false if it may. */
static bool cpu_misfit(const char *machine, json required, text *why) {
  arena memory = {NULL};
  json_iter it = json_each(required);
  json key, value;
  struct utsname host;
  const size_t before = why->size;
  char *have;
  if (uname(&host) || strcmp(machine, host.machine)) {
    text_add(why, "built for %.32s, this machine is %.32s", machine, host.machine);
    return true;
  }
  have = cpu_features(&memory);
  if (!have || !json_is(required, '[')) text_add(why, "CPU features could not be read");
  while (have && json_next(&it, &key, &value)) {
    const char *name = json_string(&memory, value);
    if (name && has_feature(have, name)) continue;
    text_add(why, "%s%.64s", why->size == before ? "needs CPU features that this host lacks: " : ", ", name ? name : "?");
  }
  arena_free(&memory);
  return why->size > before;
}

/* ---- the identity of a plugin: the sha256 of its file ---- */

/* What changes when a file does: "device inode size mtime ctime". */
static void file_stamp(const struct stat *s, char *out, size_t size) {
  snprintf(out, size, "%llu %llu %llu %lld.%09ld %lld.%09ld", (unsigned long long)s->st_dev, (unsigned long long)s->st_ino,
           (unsigned long long)s->st_size, (long long)s->st_mtim.tv_sec, (long)s->st_mtim.tv_nsec, (long long)s->st_ctim.tv_sec,
           (long)s->st_ctim.tv_nsec);
}

/* The file that remembers the sha256 of a plugin, or false for none.  folder: see `identity_cache`. */
static bool identity_file(const char *folder, const char *plugin, char *out, size_t size) {
  const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char hex[65];
  int n;
  sha256_hex(plugin, strlen(plugin), hex);
  if (folder)
    n = *folder ? snprintf(out, size, "%s/%.32s", folder, hex) : 0;
  else if (xdg && *xdg)
    n = snprintf(out, size, "%s/aot/plugins/%.32s", xdg, hex);
  else
    n = home && *home ? snprintf(out, size, "%s/.cache/aot/plugins/%.32s", home, hex) : 0;
  return n > 0 && (size_t)n < size;
}

static bool remembered(const char *path, const char *stamp, char hex[65]) {
  char line[512] = "";
  FILE *f = fopen(path, "re");
  const size_t n = strlen(stamp);
  const bool read = f && fgets(line, sizeof line, f);
  if (f) fclose(f);
  if (!read || strncmp(line, stamp, n) || line[n] != ' ' || strspn(line + n + 1, "0123456789abcdef") != 64) return false;
  memcpy(hex, line + n + 1, 64);
  hex[64] = 0;
  return true;
}

/* Write to a temporary name and rename; failure only means that the next process hashes again. */
static void remember(const char *path, const char *stamp, const char *hex) {
  char folder[1024], temporary[1100], *slash;
  FILE *f;
  int fd;
  snprintf(folder, sizeof folder, "%s", path);
  for (slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(folder, 0700);
    *slash = '/';
  }
  snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
  if ((fd = mkstemp(temporary)) < 0) return;
  f = fdopen(fd, "w");
  if (!f) {
    close(fd);
    unlink(temporary);
    return;
  }
  fprintf(f, "%s %s\n", stamp, hex);
  if (fclose(f) || rename(temporary, path)) unlink(temporary);
}

/* The sha256 of a plugin's file, from memory where the file has not changed. */
static aot_code plugin_identity(const char *plugin, const char *cache, char hex[65], aot_error *error) {
  char stamp[160], path[1024];
  struct stat info;
  bytes file;
  aot_code code;
  const bool may_remember = identity_file(cache, plugin, path, sizeof path);
  if (stat(plugin, &info)) return fail(error, AOT_ERROR_PLUGIN, plugin, "", "cannot be read: %s", strerror(errno));
  file_stamp(&info, stamp, sizeof stamp);
  if (may_remember && remembered(path, stamp, hex)) return AOT_OK;
  if ((code = map_file(plugin, &file, NULL, error)) != AOT_OK) return code;
  sha256_hex(file.at, file.size, hex);
  unmap_file(file);
  if (may_remember) remember(path, stamp, hex);
  return AOT_OK;
}

#endif
