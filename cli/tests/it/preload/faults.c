/* Faults for a program's disk and clock, preloaded into it (LD_PRELOAD).
 *
 * The file named by CHAOS_CONTROL holds 64-bit numbers that the test writes and this library reads before each call,
 * and behind them counters that the library adds to. Only files below CHAOS_DIR are affected; the wall clock is moved
 * for the whole process, the monotonic clock never. Each fault has its chance in a million calls, decided by a hash of
 * the seed and of the number of calls so far. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The order is that of `Control` in preload.rs and chaos.rs. */
struct control {
    int64_t wall_offset_s, seed, sync_eio, write_eio, write_enospc, read_eio, slow_sync, slow_us_max;
    int64_t calls, syncs_failed, writes_failed, writes_without_room, reads_failed, syncs_delayed;
};

static struct control *control;
static const char *dir;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CONTROL");
    dir = getenv("CHAOS_DIR");
    if (!path || !dir) return;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) _exit(97);
    void *found = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (found == MAP_FAILED) _exit(97);
    syscall(SYS_close, fd);
    control = found;
}

static int64_t get(int64_t *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }

/* Returns whether the file is one of those below CHAOS_DIR. */
static int ours(int fd) {
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    size_t wanted = strlen(dir);
    return length > (ssize_t)wanted && !memcmp(path, dir, wanted) && path[wanted] == '/';
}

/* Returns a number that the seed and the count of calls decide. */
static uint64_t draw(void) {
    uint64_t n = (uint64_t)get(&control->seed) + 0x9e3779b97f4a7c15u * (uint64_t)__atomic_add_fetch(&control->calls, 1, __ATOMIC_RELAXED);
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9u;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebu;
    return n ^ (n >> 31);
}

/* Decides about one fault of a call on this file, and counts it. */
static int fails(int fd, int64_t *chance, int64_t *count) {
    int64_t wanted = control ? get(chance) : 0;
    if (wanted <= 0 || (int64_t)(draw() % 1000000) >= wanted || !ours(fd)) return 0;
    __atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
    return 1;
}

static int sync_call(int fd, long number) {
    if (fails(fd, &control->slow_sync, &control->syncs_delayed))
        usleep((useconds_t)(draw() % (uint64_t)(get(&control->slow_us_max) + 1)));
    if (fails(fd, &control->sync_eio, &control->syncs_failed)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(number, fd);
}

int fsync(int fd) { return sync_call(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_call(fd, SYS_fdatasync); }

/* Returns the errno of a write that fails, or 0. */
static int write_fault(int fd) {
    if (fails(fd, &control->write_eio, &control->writes_failed)) return EIO;
    if (fails(fd, &control->write_enospc, &control->writes_without_room)) return ENOSPC;
    return 0;
}

#define FAULTY(fault) do { int found = (fault); if (found) { errno = found; return -1; } } while (0)

ssize_t write(int fd, const void *bytes, size_t count) {
    FAULTY(write_fault(fd));
    return syscall(SYS_write, fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    FAULTY(write_fault(fd));
    return syscall(SYS_writev, fd, parts, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    FAULTY(write_fault(fd));
    return syscall(SYS_pwrite64, fd, bytes, count, at);
}

int ftruncate64(int fd, off64_t length) {
    FAULTY(fails(fd, &control->write_eio, &control->writes_failed) ? EIO : 0);
    return (int)syscall(SYS_ftruncate, fd, length);
}

ssize_t read(int fd, void *bytes, size_t count) {
    FAULTY(fails(fd, &control->read_eio, &control->reads_failed) ? EIO : 0);
    return syscall(SYS_read, fd, bytes, count);
}

ssize_t pread64(int fd, void *bytes, size_t count, off64_t at) {
    FAULTY(fails(fd, &control->read_eio, &control->reads_failed) ? EIO : 0);
    return syscall(SYS_pread64, fd, bytes, count, at);
}

static int64_t offset(void) { return control ? get(&control->wall_offset_s) : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = (int)syscall(SYS_clock_gettime, clock, now);
    if (!done && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
    return done;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int done = (int)syscall(SYS_gettimeofday, now, zone);
    if (!done) now->tv_sec += offset();
    return done;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
