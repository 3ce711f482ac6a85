#pragma once

#include <zlib.h>

// A macro that Swift cannot call. 16 beyond the window's size: gzip's frame, and nothing else.
static inline int carillon_inflate_init_gzip(z_stream *stream) {
    return inflateInit2(stream, 15 + 16);
}
static inline int carillon_inflate_init_zlib(z_stream *stream) {
    return inflateInit2(stream, 15);
}
static inline int carillon_deflate_init_gzip(z_stream *stream) {
    return deflateInit2(stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
}
