/* Loaded before libc (LD_PRELOAD): lets one write to files below FAULT_FOLDER fail.

   FAULT_AT is which one, counted from 1; FAULT_ERRNO is how; FAULT_COUNT names a file that gets
   the number of writes seen when the process ends. What follows the failing write fails too
   (FAULT_STAYS=1), as on a full disk, or works again. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long seen = 0;

static int below_folder(int file) {
    const char *folder = getenv("FAULT_FOLDER");
    char link[64], path[PATH_MAX];
    if (!folder || file < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, folder, strlen(folder)) == 0;
}

static int fails(int file) {
    if (!below_folder(file)) return 0;
    const char *at = getenv("FAULT_AT"), *stays = getenv("FAULT_STAYS");
    long number = ++seen, chosen = at ? atol(at) : 0;
    if (!chosen || number < chosen || (number > chosen && !(stays && *stays == '1'))) return 0;
    errno = atoi(getenv("FAULT_ERRNO"));
    return 1;
}

__attribute__((destructor)) static void tell(void) {
    const char *name = getenv("FAULT_COUNT");
    FILE *file = name ? fopen(name, "w") : NULL;
    if (file) { fprintf(file, "%ld", seen); fclose(file); }
}

#define REAL(name, type) static __typeof__(type) real; if (!real) real = (__typeof__(type))dlsym(RTLD_NEXT, name)

ssize_t write(int file, const void *data, size_t size) {
    REAL("write", ssize_t (*)(int, const void *, size_t));
    return fails(file) ? -1 : real(file, data, size);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t place) {
    REAL("pwrite", ssize_t (*)(int, const void *, size_t, off_t));
    return fails(file) ? -1 : real(file, data, size, place);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t place) {
    REAL("pwrite64", ssize_t (*)(int, const void *, size_t, off64_t));
    return fails(file) ? -1 : real(file, data, size, place);
}
int fsync(int file) {
    REAL("fsync", int (*)(int));
    return fails(file) ? -1 : real(file);
}
int fdatasync(int file) {
    REAL("fdatasync", int (*)(int));
    return fails(file) ? -1 : real(file);
}
int ftruncate(int file, off_t size) {
    REAL("ftruncate", int (*)(int, off_t));
    return fails(file) ? -1 : real(file, size);
}
int ftruncate64(int file, off64_t size) {
    REAL("ftruncate64", int (*)(int, off64_t));
    return fails(file) ? -1 : real(file, size);
}
