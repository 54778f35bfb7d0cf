/* Loaded before libc (LD_PRELOAD): records what happens to files below POWER_FOLDER in POWER_LOG.

   Each record is a line of fields that tabs separate, and for writes the data. Inodes name files,
   because they may be renamed while they are open. tests/store/power.py replays the records. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name, type) static __typeof__(type) real; if (!real) real = (__typeof__(type))dlsym(RTLD_NEXT, name)

static int log_file(void) {
    static int file = -1;
    REAL("open", int (*)(const char *, int, ...));
    if (file < 0) file = real(getenv("POWER_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    return file;
}

static void record(const void *data, size_t size, const char *format, ...) {
    REAL("write", ssize_t (*)(int, const void *, size_t));
    char line[3 * PATH_MAX];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (real(log_file(), line, length) != length) abort();
    if (size && real(log_file(), data, size) != (ssize_t)size) abort();
}

static int is_below(const char *path) {
    const char *folder = getenv("POWER_FOLDER");
    size_t length = folder ? strlen(folder) : 0;
    return length && strncmp(path, folder, length) == 0 && (path[length] == 0 || path[length] == '/');
}

static int file_path(int file, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return is_below(path);
}

/* The absolute path of a name that may be relative to an open folder. */
static int path_at(int folder, const char *name, char *path) {
    if (name[0] == '/') snprintf(path, PATH_MAX, "%s", name);
    else if (folder == AT_FDCWD) return 0;
    else {
        file_path(folder, path);
        snprintf(path + strlen(path), PATH_MAX - strlen(path), "/%s", name);
    }
    return is_below(path);
}

static long long inode(int file) {
    struct stat state;
    return fstat(file, &state) ? -1 : (long long)state.st_ino;
}

#define LOCKED(action) pthread_mutex_lock(&turn); action; pthread_mutex_unlock(&turn)

static int opened(int folder, const char *name, int flags, int mode) {
    REAL("openat", int (*)(int, const char *, int, ...));
    char path[PATH_MAX];
    if (!path_at(folder, name, path) || !(flags & (O_CREAT | O_TRUNC)))
        return real(folder, name, flags, mode);
    struct stat before;
    LOCKED(
        int is_new = stat(path, &before);
        int file = real(folder, name, flags, mode);
        if (file >= 0 && is_new) record(NULL, 0, "create\t%s\t%lld\n", path, inode(file));
        else if (file >= 0 && flags & O_TRUNC) record(NULL, 0, "truncate\t%lld\t0\n", inode(file));
    );
    return file;
}

#define MODE int mode = 0; if (flags & O_CREAT) { va_list values; va_start(values, flags); mode = va_arg(values, int); va_end(values); }
int open(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE return opened(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE return opened(folder, name, flags, mode); }

static ssize_t written(int file, const void *data, size_t size, off64_t place) {
    REAL("pwrite64", ssize_t (*)(int, const void *, size_t, off64_t));
    static ssize_t (*plain)(int, const void *, size_t);
    if (!plain) plain = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    char path[PATH_MAX];
    if (!file_path(file, path)) return place < 0 ? plain(file, data, size) : real(file, data, size, place);
    LOCKED(
        off64_t at = place < 0 ? lseek64(file, 0, SEEK_CUR) : place;
        ssize_t done = place < 0 ? plain(file, data, size) : real(file, data, size, place);
        if (done > 0) record(data, done, "write\t%lld\t%lld\t%lld\n", inode(file), (long long)at, (long long)done);
    );
    return done;
}
ssize_t write(int file, const void *data, size_t size) { return written(file, data, size, -1); }
ssize_t pwrite(int file, const void *data, size_t size, off_t place) { return written(file, data, size, place); }
ssize_t pwrite64(int file, const void *data, size_t size, off64_t place) { return written(file, data, size, place); }

/* Copies that bypass write: their callers fall back to it. */
ssize_t sendfile(int to, int from, off_t *place, size_t size) { errno = EINVAL; return -1; }
ssize_t sendfile64(int to, int from, off64_t *place, size_t size) { errno = EINVAL; return -1; }
ssize_t copy_file_range(int from, off64_t *a, int to, off64_t *b, size_t size, unsigned flags) { errno = EINVAL; return -1; }

static int cut(int file, off64_t size) {
    REAL("ftruncate64", int (*)(int, off64_t));
    char path[PATH_MAX];
    LOCKED(
        int failed = real(file, size);
        if (!failed && file_path(file, path)) record(NULL, 0, "truncate\t%lld\t%lld\n", inode(file), (long long)size);
    );
    return failed;
}
int ftruncate(int file, off_t size) { return cut(file, size); }
int ftruncate64(int file, off64_t size) { return cut(file, size); }

static int synced(int file) {
    REAL("fsync", int (*)(int));
    char path[PATH_MAX];
    LOCKED(
        int failed = real(file);
        if (!failed && file_path(file, path)) record(NULL, 0, "sync\t%lld\n", inode(file));
    );
    return failed;
}
int fsync(int file) { return synced(file); }
int fdatasync(int file) { return synced(file); }

int renameat(int from, const char *old, int to, const char *new) {
    REAL("renameat", int (*)(int, const char *, int, const char *));
    char source[PATH_MAX], target[PATH_MAX];
    LOCKED(
        int failed = real(from, old, to, new);
        if (!failed && path_at(from, old, source) + path_at(to, new, target)) record(NULL, 0, "rename\t%s\t%s\n", source, target);
    );
    return failed;
}
int rename(const char *old, const char *new) { return renameat(AT_FDCWD, old, AT_FDCWD, new); }

int unlinkat(int folder, const char *name, int flags) {
    REAL("unlinkat", int (*)(int, const char *, int));
    char path[PATH_MAX];
    LOCKED(
        int failed = real(folder, name, flags);
        if (!failed && path_at(folder, name, path)) record(NULL, 0, "delete\t%s\n", path);
    );
    return failed;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int folder, const char *name, mode_t mode) {
    REAL("mkdirat", int (*)(int, const char *, mode_t));
    char path[PATH_MAX];
    struct stat state;
    LOCKED(
        int failed = real(folder, name, mode);
        if (!failed && path_at(folder, name, path) && !stat(path, &state))
            record(NULL, 0, "folder\t%s\t%lld\n", path, (long long)state.st_ino);
    );
    return failed;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
