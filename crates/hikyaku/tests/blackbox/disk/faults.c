/* A disk that fails: loaded into the program before the C library, it counts what is written to the store's files, and
 * lets some of it fail.
 *
 * HIKYAKU_TEST_DISK is "KIND FIRST EVERY COUNT": of the calls that count, number FIRST fails, then every EVERYth after it,
 * COUNT of them in all. KIND says which calls count and how they fail:
 *   write  writing, cutting and growing: EIO
 *   full   the same: ENOSPC
 *   short  writing: half of it is written, and the next call says ENOSPC
 *   sync   syncing: EIO
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum verdict { GOES_WELL, FAILS, IS_SHORT };

static char kind[16];
static long first, every = 1, count;
static atomic_long calls;
static atomic_int full_next;

__attribute__((constructor)) static void read_plan(void) {
    const char *plan = getenv("HIKYAKU_TEST_DISK");
    if (plan == NULL || sscanf(plan, "%15s %ld %ld %ld", kind, &first, &every, &count) != 4 || every < 1) abort();
}

static int is_store(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    return name != NULL && strncmp(name, "/hikyaku.db", 11) == 0;
}

static enum verdict judge(int fd, int is_sync, int can_be_short) {
    int saved = errno, failure = strcmp(kind, "full") == 0 || strcmp(kind, "short") == 0 ? ENOSPC : EIO;
    enum verdict verdict = GOES_WELL;
    if (is_sync == (strcmp(kind, "sync") == 0) && is_store(fd)) {
        long past = atomic_fetch_add(&calls, 1) + 1 - first;
        int is_due = past >= 0 && past % every == 0 && past / every < count;
        if (atomic_exchange(&full_next, 0)) {
            verdict = FAILS;
        } else if (is_due && can_be_short && strcmp(kind, "short") == 0) {
            atomic_store(&full_next, 1);
            verdict = IS_SHORT;
        } else if (is_due) {
            verdict = FAILS;
        }
    }
    errno = verdict == FAILS ? failure : saved;
    return verdict;
}

#define REAL(name) ({ static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); real; })

#define WRITES(name, parameters, whole, half)                                                                          \
    ssize_t name parameters {                                                                                          \
        switch (judge(fd, 0, length > 1)) {                                                                            \
        case FAILS: return -1;                                                                                         \
        case IS_SHORT: return REAL(name) half;                                                                         \
        default: return REAL(name) whole;                                                                              \
        }                                                                                                              \
    }

#define CHANGES(name, is_sync, parameters, arguments)                                                                  \
    int name parameters { return judge(fd, is_sync, 0) == FAILS ? -1 : REAL(name) arguments; }

WRITES(write, (int fd, const void *bytes, size_t length), (fd, bytes, length), (fd, bytes, length / 2))
WRITES(pwrite, (int fd, const void *bytes, size_t length, off_t at), (fd, bytes, length, at), (fd, bytes, length / 2, at))
WRITES(pwrite64, (int fd, const void *bytes, size_t length, off64_t at), (fd, bytes, length, at), (fd, bytes, length / 2, at))
CHANGES(ftruncate, 0, (int fd, off_t length), (fd, length))
CHANGES(ftruncate64, 0, (int fd, off64_t length), (fd, length))
CHANGES(fsync, 1, (int fd), (fd))
CHANGES(fdatasync, 1, (int fd), (fd))
