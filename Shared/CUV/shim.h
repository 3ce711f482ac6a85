#pragma once

#include <sys/prctl.h>
#include <uv.h>

// Glibc's Swift module lacks pthread_setname_np, and prctl is variadic.
static inline void carillon_set_thread_name(const char *name) {
    prctl(PR_SET_NAME, name, 0, 0, 0);
}

// Glibc's Swift module lacks accept4 too.
extern int accept4(int socket, struct sockaddr *address, socklen_t *length, int flags);

static inline int carillon_accept(int listener) {
    return accept4(listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC);
}
