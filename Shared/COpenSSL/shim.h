#pragma once

#include <openssl/ssl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

// For Cryptography: macros and variadics that Swift cannot call.
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/hmac.h>

static inline EVP_PKEY *carillon_generate_p256(void) { return EVP_EC_gen("P-256"); }
static inline EVP_PKEY *carillon_generate_rsa(unsigned int bits) { return EVP_RSA_gen(bits); }
static inline long carillon_bio_memory(BIO *bio, const char **start) {
    return BIO_get_mem_data(bio, (char **)start);
}
static inline void carillon_free(void *pointer) { OPENSSL_free(pointer); }
static inline int carillon_print_name(BIO *bio, const X509_NAME *name) {
    return X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB);
}

// For HTTPServer: macros that Swift cannot call, or whose constants it cannot see.
static inline int carillon_SSL_CTX_set_min_proto_version(SSL_CTX *ctx, int version) {
    return (int)SSL_CTX_set_min_proto_version(ctx, version);
}
static inline void carillon_SSL_CTX_harden_server(SSL_CTX *ctx) {
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
}
static inline int carillon_SSL_CTX_add1_chain_cert(SSL_CTX *ctx, X509 *certificate) {
    return (int)SSL_CTX_add1_chain_cert(ctx, certificate);
}

// For HTTPTransport: what is left over from a write may be offered again from another place.
static inline void carillon_SSL_CTX_allow_partial_writes(SSL_CTX *ctx) {
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}
