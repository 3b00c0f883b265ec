/* Preloaded into a broker: while the file SLOW_FSYNC exists, writing data to the disk takes SLOW_FSYNC_US longer. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static int after_a_while(const char *name, int fd)
{
    const char *flag = getenv("SLOW_FSYNC");
    if (flag && access(flag, F_OK) == 0)
        usleep(atoi(getenv("SLOW_FSYNC_US")));
    int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return sync(fd);
}

int fsync(int fd) { return after_a_while("fsync", fd); }
int fdatasync(int fd) { return after_a_while("fdatasync", fd); }
