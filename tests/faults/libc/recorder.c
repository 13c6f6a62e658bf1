/* Records what a process does to the files below given folders, in one order for all threads.
 *
 * Loaded with LD_PRELOAD. Every call that changes bytes, sizes or names, and every sync, is performed and recorded
 * under one lock, so the trace has the order in which the kernel saw the calls. Directories and files are named by
 * inode. `recorder_begin` starts a trace, `recorder_note` writes a note of the program between the calls. A call that
 * the reader of the trace cannot model is recorded as "unmodelled" with its name, never silently left out.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The header of one record; `trace.py` unpacks the same layout. Two names and the data follow it. */
struct header {
    uint32_t kind;
    uint32_t first_length, second_length, padding;
    uint64_t folder, second_folder, node, offset, size;
};

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1;
static char roots[8][PATH_MAX];
static int root_count;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void put(const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length) {
        ssize_t written = syscall(SYS_write, trace, at, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            abort(); /* a trace with a gap would be worse than none */
        at += written;
        length -= (size_t)written;
    }
}

static void record(char kind, uint64_t folder, const char *first, uint64_t second_folder, const char *second,
                   uint64_t node, uint64_t offset, const void *data, size_t size)
{
    int kept = errno;
    struct header header = {(uint32_t)kind, first ? strlen(first) : 0, second ? strlen(second) : 0, 0,
                            folder, second_folder, node, offset, size};
    put(&header, sizeof header);
    put(first, header.first_length);
    put(second, header.second_length);
    if (data)
        put(data, size);
    errno = kept;
}

static void unmodelled(const char *call)
{
    record('X', 0, call, 0, NULL, 0, 0, NULL, 0);
}

static int is_below(const char *path)
{
    for (int each = 0; each < root_count; each++) {
        size_t length = strlen(roots[each]);
        if (!strncmp(path, roots[each], length) && (path[length] == '/' || !path[length]))
            return 1;
    }
    return 0;
}

/* Return the inode of an open file below the folders, or 0. */
static uint64_t node_of(int descriptor)
{
    int kept = errno;
    char link[64], path[PATH_MAX];
    struct stat found;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = trace < 0 ? -1 : readlink(link, path, sizeof path - 1);
    uint64_t node = 0;
    if (length > 0) {
        path[length] = 0;
        if (is_below(path) && !fstat(descriptor, &found) && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode)))
            node = found.st_ino;
    }
    errno = kept;
    return node;
}

/* A name in a folder, as a call gives it: relative to a descriptor or to the working directory. */
struct place {
    uint64_t folder; /* 0 if the folder is not below the roots */
    char name[NAME_MAX + 1];
};

static struct place place_of(int at, const char *path)
{
    struct place place = {0, ""};
    char parent[PATH_MAX];
    int kept = errno;
    if (trace < 0 || !path || strlen(path) >= sizeof parent)
        return place;
    strcpy(parent, path);
    size_t length = strlen(parent);
    while (length > 1 && parent[length - 1] == '/')
        parent[--length] = 0;
    char *slash = strrchr(parent, '/');
    const char *name = slash ? slash + 1 : parent;
    if (strlen(name) <= NAME_MAX) {
        strcpy(place.name, name);
        if (slash)
            slash[slash == parent ? 1 : 0] = 0;
        int folder = syscall(SYS_openat, at, slash ? parent : ".", O_PATH | O_CLOEXEC, 0);
        if (folder >= 0) {
            place.folder = node_of(folder);
            syscall(SYS_close, folder);
        }
    }
    errno = kept;
    return place;
}

static uint64_t node_at(int at, const char *path)
{
    struct stat found;
    int kept = errno;
    uint64_t node = fstatat(at, path, &found, AT_SYMLINK_NOFOLLOW) ? 0 : found.st_ino;
    errno = kept;
    return node;
}

/* the program's side */

int recorder_begin(const char *path, const char *folders)
{
    char *list = strdup(folders), *rest = list, *each;
    root_count = 0;
    while ((each = strsep(&rest, ":")) && root_count < 8)
        snprintf(roots[root_count++], PATH_MAX, "%s", each);
    free(list);
    trace = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return trace >= 0;
}

void recorder_note(const char *text)
{
    pthread_mutex_lock(&turn);
    if (trace >= 0)
        record('N', 0, NULL, 0, NULL, 0, 0, text, strlen(text));
    pthread_mutex_unlock(&turn);
}

/* bytes and sizes */

static uint64_t position(int descriptor)
{
    struct stat found;
    int flags = syscall(SYS_fcntl, descriptor, F_GETFL);
    if (flags >= 0 && flags & O_APPEND)
        return fstat(descriptor, &found) ? 0 : (uint64_t)found.st_size;
    off_t at = lseek(descriptor, 0, SEEK_CUR);
    return at < 0 ? 0 : (uint64_t)at;
}

ssize_t write(int descriptor, const void *data, size_t size)
{
    if (trace < 0)
        return REAL(write)(descriptor, data, size);
    pthread_mutex_lock(&turn);
    uint64_t node = node_of(descriptor), at = node ? position(descriptor) : 0;
    if (!node)
        pthread_mutex_unlock(&turn); /* a pipe may block, and another thread may be the one that reads it */
    ssize_t done = REAL(write)(descriptor, data, size);
    if (node) {
        if (done > 0)
            record('W', 0, NULL, 0, NULL, node, at, data, done);
        pthread_mutex_unlock(&turn);
    }
    return done;
}

static void record_parts(uint64_t node, uint64_t at, const struct iovec *parts, int count, ssize_t done)
{
    for (int each = 0; each < count && done > 0; each++) {
        size_t size = parts[each].iov_len < (size_t)done ? parts[each].iov_len : (size_t)done;
        record('W', 0, NULL, 0, NULL, node, at, parts[each].iov_base, size);
        at += size;
        done -= size;
    }
}

ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
    if (trace < 0)
        return REAL(writev)(descriptor, parts, count);
    pthread_mutex_lock(&turn);
    uint64_t node = node_of(descriptor), at = node ? position(descriptor) : 0;
    if (!node)
        pthread_mutex_unlock(&turn);
    ssize_t done = REAL(writev)(descriptor, parts, count);
    if (node) {
        record_parts(node, at, parts, count, done);
        pthread_mutex_unlock(&turn);
    }
    return done;
}

#define PWRITE(name)                                                             \
    ssize_t name(int descriptor, const void *data, size_t size, off_t at)        \
    {                                                                            \
        pthread_mutex_lock(&turn);                                               \
        uint64_t node = node_of(descriptor);                                     \
        ssize_t done = REAL(name)(descriptor, data, size, at);                   \
        if (node && done > 0)                                                    \
            record('W', 0, NULL, 0, NULL, node, at, data, done);                 \
        pthread_mutex_unlock(&turn);                                             \
        return done;                                                             \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(name)                                                            \
    ssize_t name(int descriptor, const struct iovec *parts, int count, off_t at) \
    {                                                                            \
        pthread_mutex_lock(&turn);                                               \
        uint64_t node = node_of(descriptor);                                     \
        ssize_t done = REAL(name)(descriptor, parts, count, at);                 \
        if (node)                                                                \
            record_parts(node, at, parts, count, done);                          \
        pthread_mutex_unlock(&turn);                                             \
        return done;                                                             \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

#define PWRITEV2(name)                                                           \
    ssize_t name(int descriptor, const struct iovec *parts, int count, off_t at, int flags) \
    {                                                                            \
        pthread_mutex_lock(&turn);                                               \
        uint64_t node = node_of(descriptor);                                     \
        uint64_t begin = node && at == -1 ? position(descriptor) : (uint64_t)at; \
        ssize_t done = REAL(name)(descriptor, parts, count, at, flags);          \
        if (node) {                                                              \
            record_parts(node, begin, parts, count, done);                       \
            if (flags)                                                           \
                unmodelled(#name " with flags");                                 \
        }                                                                        \
        pthread_mutex_unlock(&turn);                                             \
        return done;                                                             \
    }
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

#define FTRUNCATE(name)                                                          \
    int name(int descriptor, off_t size)                                         \
    {                                                                            \
        pthread_mutex_lock(&turn);                                               \
        uint64_t node = node_of(descriptor);                                     \
        int failed = REAL(name)(descriptor, size);                               \
        if (node && !failed)                                                     \
            record('T', 0, NULL, 0, NULL, node, size, NULL, 0);                  \
        pthread_mutex_unlock(&turn);                                             \
        return failed;                                                           \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

#define TRUNCATE(name)                                                           \
    int name(const char *path, off_t size)                                       \
    {                                                                            \
        pthread_mutex_lock(&turn);                                               \
        struct place place = place_of(AT_FDCWD, path);                           \
        int failed = REAL(name)(path, size);                                     \
        if (place.folder && !failed)                                             \
            record('T', 0, NULL, 0, NULL, node_at(AT_FDCWD, path), size, NULL, 0); \
        pthread_mutex_unlock(&turn);                                             \
        return failed;                                                           \
    }
TRUNCATE(truncate)
TRUNCATE(truncate64)

/* Allocation only matters for the size here: the new bytes are zero. */
#define ALLOCATE(name)                                                           \
    int name(int descriptor, off_t start, off_t length)                          \
    {                                                                            \
        struct stat before;                                                      \
        pthread_mutex_lock(&turn);                                               \
        uint64_t node = node_of(descriptor);                                     \
        int longer = node && !fstat(descriptor, &before) && before.st_size < start + length; \
        int error = REAL(name)(descriptor, start, length);                       \
        if (longer && !error)                                                    \
            record('T', 0, NULL, 0, NULL, node, start + length, NULL, 0);        \
        pthread_mutex_unlock(&turn);                                             \
        return error;                                                            \
    }
ALLOCATE(posix_fallocate)
ALLOCATE(posix_fallocate64)

#define SYNC(name)                                                               \
    int name(int descriptor)                                                     \
    {                                                                            \
        pthread_mutex_lock(&turn);                                               \
        uint64_t node = node_of(descriptor);                                     \
        int failed = REAL(name)(descriptor);                                     \
        if (node && !failed)                                                     \
            record('S', 0, NULL, 0, NULL, node, 0, NULL, 0);                     \
        pthread_mutex_unlock(&turn);                                             \
        return failed;                                                           \
    }
SYNC(fsync)
SYNC(fdatasync)

/* names */

static int opened(int (*act)(int, const char *, int, ...), int at, const char *path, int flags, mode_t mode)
{
    if (trace < 0 || !(flags & (O_CREAT | O_TRUNC | O_SYNC | O_DSYNC)) || (flags & O_TMPFILE) == O_TMPFILE)
        return act(at, path, flags, mode);
    pthread_mutex_lock(&turn);
    struct place place = place_of(at, path);
    uint64_t before = place.folder ? node_at(at, path) : 0;
    int descriptor = act(at, path, flags, mode);
    if (descriptor >= 0 && place.folder) {
        uint64_t node = node_of(descriptor);
        if (flags & O_CREAT && !before)
            record('C', place.folder, place.name, 0, NULL, node, 0, NULL, 0);
        else if (flags & O_TRUNC)
            record('T', 0, NULL, 0, NULL, node, 0, NULL, 0);
        if (flags & (O_SYNC | O_DSYNC))
            unmodelled("open with O_SYNC");
    }
    pthread_mutex_unlock(&turn);
    return descriptor;
}

static int by_openat(int at, const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return REAL(openat)(at, path, flags, mode);
}

#define MODE(flags)                                                              \
    mode_t mode = 0;                                                             \
    if (flags & (O_CREAT | O_TMPFILE)) {                                         \
        va_list rest;                                                            \
        va_start(rest, flags);                                                   \
        mode = va_arg(rest, mode_t);                                             \
        va_end(rest);                                                            \
    }

int open(const char *path, int flags, ...)
{
    MODE(flags)
    return opened(by_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE(flags)
    return opened(by_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int openat(int at, const char *path, int flags, ...)
{
    MODE(flags)
    return opened(by_openat, at, path, flags, mode);
}

int openat64(int at, const char *path, int flags, ...)
{
    MODE(flags)
    return opened(by_openat, at, path, flags | O_LARGEFILE, mode);
}

int mkdirat(int at, const char *path, mode_t mode)
{
    pthread_mutex_lock(&turn);
    struct place place = place_of(at, path);
    int failed = REAL(mkdirat)(at, path, mode);
    if (!failed && place.folder)
        record('M', place.folder, place.name, 0, NULL, node_at(at, path), 0, NULL, 0);
    pthread_mutex_unlock(&turn);
    return failed;
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

int unlinkat(int at, const char *path, int flags)
{
    pthread_mutex_lock(&turn);
    struct place place = place_of(at, path);
    int failed = REAL(unlinkat)(at, path, flags);
    if (!failed && place.folder)
        record('U', place.folder, place.name, 0, NULL, 0, 0, NULL, 0);
    pthread_mutex_unlock(&turn);
    return failed;
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int renameat2(int from, const char *path, int to, const char *target, unsigned flags)
{
    pthread_mutex_lock(&turn);
    struct place old = place_of(from, path), new = place_of(to, target);
    int failed = REAL(renameat2)(from, path, to, target, flags);
    if (!failed && (old.folder || new.folder)) {
        if (!old.folder || !new.folder || flags & RENAME_EXCHANGE)
            unmodelled("rename in or out of the folders, or an exchange");
        else
            record('V', old.folder, old.name, new.folder, new.name, node_at(to, target), 0, NULL, 0);
    }
    pthread_mutex_unlock(&turn);
    return failed;
}

int renameat(int from, const char *path, int to, const char *target)
{
    return renameat2(from, path, to, target, 0);
}

int rename(const char *path, const char *target)
{
    return renameat2(AT_FDCWD, path, AT_FDCWD, target, 0);
}

int linkat(int from, const char *path, int to, const char *target, int flags)
{
    pthread_mutex_lock(&turn);
    struct place old = place_of(from, path), new = place_of(to, target);
    int failed = REAL(linkat)(from, path, to, target, flags);
    if (!failed && new.folder) {
        if (!old.folder)
            unmodelled("link to a file outside of the folders");
        else
            record('L', new.folder, new.name, 0, NULL, node_at(to, target), 0, NULL, 0);
    }
    pthread_mutex_unlock(&turn);
    return failed;
}

int link(const char *path, const char *target)
{
    return linkat(AT_FDCWD, path, AT_FDCWD, target, 0);
}

/* calls that the model does not know */

int symlinkat(const char *content, int at, const char *path)
{
    pthread_mutex_lock(&turn);
    struct place place = place_of(at, path);
    int failed = REAL(symlinkat)(content, at, path);
    if (!failed && place.folder)
        unmodelled("symlink");
    pthread_mutex_unlock(&turn);
    return failed;
}

int symlink(const char *content, const char *path)
{
    return symlinkat(content, AT_FDCWD, path);
}

static void refuse(int descriptor, const char *call)
{
    pthread_mutex_lock(&turn);
    if (node_of(descriptor))
        unmodelled(call);
    pthread_mutex_unlock(&turn);
}

ssize_t copy_file_range(int from, off64_t *start, int to, off64_t *target, size_t length, unsigned flags)
{
    refuse(to, "copy_file_range");
    return REAL(copy_file_range)(from, start, to, target, length, flags);
}

ssize_t sendfile(int to, int from, off_t *start, size_t length)
{
    refuse(to, "sendfile");
    return ((ssize_t(*)(int, int, off_t *, size_t))dlsym(RTLD_NEXT, "sendfile"))(to, from, start, length);
}

ssize_t sendfile64(int to, int from, off64_t *start, size_t length)
{
    refuse(to, "sendfile");
    return ((ssize_t(*)(int, int, off64_t *, size_t))dlsym(RTLD_NEXT, "sendfile64"))(to, from, start, length);
}

int fallocate(int descriptor, int mode, off_t start, off_t length)
{
    refuse(descriptor, "fallocate");
    return REAL(fallocate)(descriptor, mode, start, length);
}

int fallocate64(int descriptor, int mode, off64_t start, off64_t length)
{
    refuse(descriptor, "fallocate");
    return REAL(fallocate64)(descriptor, mode, start, length);
}

/* SQLite maps its index of the WAL. It is rebuilt after a crash, so its content does not matter. */
static void refuse_map(int protection, int flags, int descriptor)
{
    char link[64], path[PATH_MAX];
    if (trace < 0 || descriptor < 0 || !(protection & PROT_WRITE) || !(flags & MAP_SHARED))
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 4 || !memcmp(path + length - 4, "-shm", 4))
        return;
    refuse(descriptor, "mmap");
}

void *mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t at)
{
    refuse_map(protection, flags, descriptor);
    return (void *)syscall(SYS_mmap, address, length, protection, flags, descriptor, at);
}

void *mmap64(void *address, size_t length, int protection, int flags, int descriptor, off64_t at)
{
    refuse_map(protection, flags, descriptor);
    return (void *)syscall(SYS_mmap, address, length, protection, flags, descriptor, at);
}
