/* Preloaded into a process: records what it does to the files below a folder, and disturbs it.

Nothing happens before `configure_faults` is called, see zygote.py. An operation is whatever changes
a file or a folder, or forces it to disk; processes that are forked later count on from there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_FILES 65536

static struct { unsigned number; dev_t device; ino_t inode; } opened[MAX_FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *folder;
static int trace = -1, count = -1;
static long kill_at, full_at, n_operations;
static unsigned n_opened;

static int appended(const char *path) {
    if (!path[0]) return -1;
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 900); /* out of the way of others */
}

/* `below` is an absolute path; `trace_file` gets a record of each operation, see power_cuts.py, and
   `count_file` a byte; both may be "". The process is killed at its operation number `kill`, a
   write in the middle of it. From operation number `full` on nothing can be written or created. */
void configure_faults(const char *below, const char *trace_file, const char *count_file, long kill,
                      long full) {
    folder = strdup(below);
    trace = appended(trace_file);
    count = appended(count_file);
    kill_at = kill;
    full_at = full;
}

/* Write the absolute path to `full`; return whether it is below the folder. */
static int is_ours(int parent, const char *path, char *full) {
    if (!folder) return 0;
    if (path[0] == '/') {
        snprintf(full, PATH_MAX, "%s", path);
    } else {
        char start_of[PATH_MAX], link[64];
        if (parent == AT_FDCWD) {
            if (!getcwd(start_of, sizeof start_of)) return 0;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", parent);
            ssize_t length = readlink(link, start_of, sizeof start_of - 1);
            if (length < 0) return 0;
            start_of[length] = 0;
        }
        if (snprintf(full, PATH_MAX, "%s/%s", start_of, path) >= PATH_MAX) return 0;
    }
    size_t length = strlen(folder);
    return !strncmp(full, folder, length) && (full[length] == '/' || !full[length]);
}

static int is_ours_fd(int fd) {
    struct stat status;
    if (!folder || fd < 0 || fd >= MAX_FILES || !opened[fd].number) return 0;
    if (fstat(fd, &status)) return 0;
    /* A number may be in use again, for something else. */
    return status.st_dev == opened[fd].device && status.st_ino == opened[fd].inode;
}

static void record(const char *line, const void *data, size_t length) {
    if (trace < 0) return;
    size_t n_line = strlen(line);
    char *whole = malloc(n_line + length);
    memcpy(whole, line, n_line);
    if (length) memcpy(whole + n_line, data, length);
    for (size_t done = 0; done < n_line + length;) {
        ssize_t n = syscall(SYS_write, trace, whole + done, n_line + length - done);
        if (n <= 0) abort();
        done += n;
    }
    free(whole);
}

/* Count an operation that changes files. Return 1 if it is to fail because the disk is full. */
static int counted(int takes_space, int *is_last) {
    n_operations++;
    if (count >= 0 && syscall(SYS_write, count, "x", 1) != 1) abort();
    *is_last = kill_at && n_operations == kill_at;
    if (full_at && n_operations >= full_at && takes_space) {
        errno = ENOSPC;
        return 1;
    }
    return 0;
}

static void die(void) { kill(getpid(), SIGKILL); }

static int open_at(int parent, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX];
    if (!is_ours(parent, path, full)) return syscall(SYS_openat, parent, path, flags, mode);
    pthread_mutex_lock(&lock);
    int is_last = 0, fd = -1;
    struct stat status;
    int is_new = (flags & O_CREAT) && stat(full, &status);
    if ((is_new || (flags & O_TRUNC)) && counted(is_new, &is_last)) goto end;
    if (is_last) die();
    fd = syscall(SYS_openat, parent, path, flags, mode);
    if (fd >= 0 && fd < MAX_FILES && !fstat(fd, &status)) {
        opened[fd].number = ++n_opened;
        opened[fd].device = status.st_dev;
        opened[fd].inode = status.st_ino;
        char line[PATH_MAX + 64];
        snprintf(line, sizeof line, "open\t%d.%u\t%d\t%s\n", getpid(), n_opened,
                 !!(flags & O_TRUNC), full);
        record(line, 0, 0);
    }
end:
    pthread_mutex_unlock(&lock);
    return fd;
}

#define OPEN(name, first, parent)                              \
    int name(first const char *path, int flags, ...) {         \
        va_list rest;                                          \
        va_start(rest, flags);                                 \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                          \
        return open_at(parent, path, flags, mode);             \
    }
#define NOTHING
OPEN(open, NOTHING, AT_FDCWD)
OPEN(open64, NOTHING, AT_FDCWD)
#define COMMA ,
OPEN(openat, int at COMMA, at)
OPEN(openat64, int at COMMA, at)

static ssize_t write_at(int fd, const void *data, size_t length, off_t offset, int is_placed) {
    if (!is_ours_fd(fd))
        return is_placed ? syscall(SYS_pwrite64, fd, data, length, offset)
                         : syscall(SYS_write, fd, data, length);
    pthread_mutex_lock(&lock);
    int is_last;
    ssize_t written = -1;
    if (counted(1, &is_last)) goto end;
    if (is_last) {
        if (is_placed) syscall(SYS_pwrite64, fd, data, length / 2, offset);
        else syscall(SYS_write, fd, data, length / 2);
        die();
    }
    if (!is_placed) {
        struct stat status;
        fstat(fd, &status);
        int appends = fcntl(fd, F_GETFL) & O_APPEND;
        offset = appends ? status.st_size : lseek(fd, 0, SEEK_CUR);
    }
    written = is_placed ? syscall(SYS_pwrite64, fd, data, length, offset)
                        : syscall(SYS_write, fd, data, length);
    if (written > 0) {
        char line[128];
        snprintf(line, sizeof line, "write\t%d.%u\t%lld\t%zd\n", getpid(), opened[fd].number,
                 (long long)offset, written);
        record(line, data, written);
    }
end:
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t write(int fd, const void *data, size_t length) { return write_at(fd, data, length, 0, 0); }
ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    return write_at(fd, data, length, offset, 1);
}
ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset) {
    return write_at(fd, data, length, offset, 1);
}
ssize_t writev(int fd, const struct iovec *parts, int n) {
    if (!is_ours_fd(fd)) return syscall(SYS_writev, fd, parts, n);
    ssize_t all = 0;
    for (int i = 0; i < n; i++) {
        ssize_t written = write_at(fd, parts[i].iov_base, parts[i].iov_len, 0, 0);
        if (written < 0) return all ? all : written;
        all += written;
        if ((size_t)written < parts[i].iov_len) break;
    }
    return all;
}

/* Count, run and record an operation that takes no space. */
#define CHANGE(condition, call, ...)                    \
    if (!(condition)) return call;                      \
    pthread_mutex_lock(&lock);                          \
    int is_last;                                        \
    counted(0, &is_last);                               \
    if (is_last) die();                                 \
    int result = call;                                  \
    if (!result) {                                      \
        char line[2 * PATH_MAX + 64];                   \
        snprintf(line, sizeof line, __VA_ARGS__);       \
        record(line, 0, 0);                             \
    }                                                   \
    pthread_mutex_unlock(&lock);                        \
    return result;

int ftruncate(int fd, off_t length) {
    CHANGE(is_ours_fd(fd), syscall(SYS_ftruncate, fd, length), "truncate\t%d.%u\t%lld\n", getpid(),
           opened[fd].number, (long long)length)
}
int ftruncate64(int fd, off_t length) { return ftruncate(fd, length); }
int fsync(int fd) {
    CHANGE(is_ours_fd(fd), syscall(SYS_fsync, fd), "sync\t%d.%u\n", getpid(), opened[fd].number)
}
int fdatasync(int fd) {
    CHANGE(is_ours_fd(fd), syscall(SYS_fdatasync, fd), "sync\t%d.%u\n", getpid(),
           opened[fd].number)
}
int renameat(int from, const char *old, int to, const char *new) {
    char a[PATH_MAX], b[PATH_MAX];
    CHANGE(is_ours(from, old, a) && is_ours(to, new, b),
           syscall(SYS_renameat2, from, old, to, new, 0), "rename\t%s\t%s\n", a, b)
}
int rename(const char *old, const char *new) { return renameat(AT_FDCWD, old, AT_FDCWD, new); }
int unlinkat(int parent, const char *path, int flags) {
    char full[PATH_MAX];
    CHANGE(is_ours(parent, path, full), syscall(SYS_unlinkat, parent, path, flags),
           "remove\t%s\n", full)
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int mkdirat(int parent, const char *path, mode_t mode) {
    char full[PATH_MAX];
    int ours = is_ours(parent, path, full);
    if (ours && full_at && n_operations + 1 >= full_at) {
        errno = ENOSPC;
        return -1;
    }
    CHANGE(ours, syscall(SYS_mkdirat, parent, path, mode), "folder\t%s\n", full)
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
