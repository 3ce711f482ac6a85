#pragma once

#include <sys/prctl.h>
#include <uv.h>

// Glibc's Swift module lacks pthread_setname_np, and prctl is variadic.
static inline void carillon_set_thread_name(const char *name) {
    prctl(PR_SET_NAME, name, 0, 0, 0);
}
