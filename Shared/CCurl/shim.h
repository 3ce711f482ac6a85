#pragma once

#define CURL_DISABLE_TYPECHECK 1
#include <curl/curl.h>

#include <netinet/in.h>
#include <sys/socket.h>

// Swift cannot call C variadics: one typed function per kind of argument, no logic.

typedef size_t (*carillon_curl_data_callback)(char *, size_t, size_t, void *);
typedef int (*carillon_curl_prereq_callback)(void *, char *, char *, int, int);
typedef int (*carillon_curl_debug_callback)(CURL *, curl_infotype, char *, size_t, void *);
typedef curl_socket_t (*carillon_curl_open_callback)(void *, curlsocktype, struct curl_sockaddr *);
typedef int (*carillon_curl_socket_callback)(CURL *, curl_socket_t, int, void *, void *);
typedef int (*carillon_curl_timer_callback)(CURLM *, long, void *);

static inline CURLcode carillon_easy_set_long(CURL *handle, CURLoption option, long value) {
    return curl_easy_setopt(handle, option, value);
}

static inline CURLcode carillon_easy_set_size(CURL *handle, CURLoption option, curl_off_t value) {
    return curl_easy_setopt(handle, option, value);
}

static inline CURLcode carillon_easy_set_text(CURL *handle, CURLoption option, const char *value) {
    return curl_easy_setopt(handle, option, value);
}

static inline CURLcode carillon_easy_set_pointer(CURL *handle, CURLoption option, void *value) {
    return curl_easy_setopt(handle, option, value);
}

static inline CURLcode carillon_easy_set_bytes(
    CURL *handle, CURLoption option, const void *value
) {
    return curl_easy_setopt(handle, option, value);
}

static inline CURLcode carillon_easy_set_list(
    CURL *handle, CURLoption option, struct curl_slist *value
) {
    return curl_easy_setopt(handle, option, value);
}

// The bytes are copied.
static inline CURLcode carillon_easy_set_blob(
    CURL *handle, CURLoption option, const void *bytes, size_t count
) {
    struct curl_blob blob = {(void *)bytes, count, CURL_BLOB_COPY};
    return curl_easy_setopt(handle, option, &blob);
}

static inline CURLcode carillon_easy_set_data_callback(
    CURL *handle, CURLoption option, carillon_curl_data_callback value
) {
    return curl_easy_setopt(handle, option, value);
}

static inline CURLcode carillon_easy_set_prereq_callback(
    CURL *handle, carillon_curl_prereq_callback value
) {
    return curl_easy_setopt(handle, CURLOPT_PREREQFUNCTION, value);
}

static inline CURLcode carillon_easy_set_debug_callback(
    CURL *handle, carillon_curl_debug_callback value
) {
    return curl_easy_setopt(handle, CURLOPT_DEBUGFUNCTION, value);
}

static inline CURLcode carillon_easy_set_open_callback(
    CURL *handle, carillon_curl_open_callback value
) {
    return curl_easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, value);
}

typedef int (*carillon_curl_lookup_callback)(void *, void *, void *);

static inline CURLcode carillon_easy_set_lookup_callback(
    CURL *handle, carillon_curl_lookup_callback value
) {
    return curl_easy_setopt(handle, CURLOPT_RESOLVER_START_FUNCTION, value);
}

static inline CURLcode carillon_easy_get_long(CURL *handle, CURLINFO info, long *value) {
    return curl_easy_getinfo(handle, info, value);
}

static inline CURLMcode carillon_multi_set_long(CURLM *handle, CURLMoption option, long value) {
    return curl_multi_setopt(handle, option, value);
}

static inline CURLMcode carillon_multi_set_pointer(
    CURLM *handle, CURLMoption option, void *value
) {
    return curl_multi_setopt(handle, option, value);
}

static inline CURLMcode carillon_multi_set_socket_callback(
    CURLM *handle, carillon_curl_socket_callback value
) {
    return curl_multi_setopt(handle, CURLMOPT_SOCKETFUNCTION, value);
}

static inline CURLMcode carillon_multi_set_timer_callback(
    CURLM *handle, carillon_curl_timer_callback value
) {
    return curl_multi_setopt(handle, CURLMOPT_TIMERFUNCTION, value);
}

// The next finished transfer, NULL when there is none; CURLMsg holds a union that Swift cannot
// read.
static inline CURL *carillon_multi_next_finished(CURLM *handle, CURLcode *result) {
    int left = 0;
    CURLMsg *message;
    while ((message = curl_multi_info_read(handle, &left)) != NULL) {
        if (message->msg == CURLMSG_DONE) {
            *result = message->data.result;
            return message->easy_handle;
        }
    }
    return NULL;
}

static inline const char *carillon_curl_default_capath(void) {
    return curl_version_info(CURLVERSION_NOW)->capath;
}

// Where the address itself begins: curl stores more behind `addr` than its type says.
static inline const struct sockaddr *carillon_curl_address(const struct curl_sockaddr *address) {
    return &address->addr;
}

// For connections that libcurl makes and others use. `internals` is an `SSL *`, valid only inside
// the pre-request callback.
typedef CURLcode (*carillon_curl_ssl_callback)(CURL *, void *, void *);

static inline CURLcode carillon_easy_set_ssl_callback(
    CURL *handle, carillon_curl_ssl_callback value
) {
    return curl_easy_setopt(handle, CURLOPT_SSL_CTX_FUNCTION, value);
}

static inline void *carillon_easy_tls_session(CURL *handle) {
    struct curl_tlssessioninfo *info = NULL;
    if (curl_easy_getinfo(handle, CURLINFO_TLS_SSL_PTR, &info) != CURLE_OK || info == NULL) {
        return NULL;
    }
    return info->backend == CURLSSLBACKEND_OPENSSL ? info->internals : NULL;
}

static inline curl_socket_t carillon_easy_socket(CURL *handle) {
    curl_socket_t descriptor = CURL_SOCKET_BAD;
    curl_easy_getinfo(handle, CURLINFO_ACTIVESOCKET, &descriptor);
    return descriptor;
}

static inline const char *carillon_curl_default_cafile(void) {
    return curl_version_info(CURLVERSION_NOW)->cainfo;
}
