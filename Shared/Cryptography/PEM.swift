internal import COpenSSL

/// The limit of a PEM: a longer string is not a key or a certificate.
private let maximumPEMByteCount = 1 << 18

/// Passes the string to OpenSSL as a `BIO` that lives only during the closure.
///
/// - Throws: `badPEM` if it is not a PEM: empty, or huge.
func withPEM<Result>(
    _ text: String,
    _ body: (OpaquePointer) throws(CryptographyError) -> Result
) throws(CryptographyError) -> Result {
    let bytes = Array(text.utf8)
    guard !bytes.isEmpty, bytes.count <= maximumPEMByteCount else {
        throw .badPEM("empty, or longer than \(maximumPEMByteCount) bytes")
    }
    guard let bio = unsafe BIO_new(BIO_s_mem()) else { throw libraryFailure("BIO_new") }
    defer { unsafe _ = BIO_free(bio) }
    guard unsafe BIO_write(bio, bytes, Int32(bytes.count)) == Int32(bytes.count) else {
        throw libraryFailure("BIO_write")
    }
    return try unsafe body(bio)
}

/// Returns the string that the closure writes into a `BIO`; the closure returns whether it
/// succeeded.
func textFromBIO(
    _ call: String,
    _ body: (OpaquePointer) -> Bool
) throws(CryptographyError) -> String {
    guard let bio = unsafe BIO_new(BIO_s_mem()) else { throw libraryFailure("BIO_new") }
    defer { unsafe _ = BIO_free(bio) }
    guard unsafe body(bio) else { throw libraryFailure(call) }
    var start: UnsafePointer<CChar>?
    let count = unsafe carillon_bio_memory(bio, &start)
    return unsafe String(
        decoding: UnsafeRawBufferPointer(start: start, count: count),
        as: UTF8.self
    )
}

/// Refuses OpenSSL's request for a passphrase, so that an encrypted PEM is refused and a service
/// never waits at a terminal.
func refusePassphrase(
    buffer: UnsafeMutablePointer<CChar>?,
    size: Int32,
    isWriting: Int32,
    context: UnsafeMutableRawPointer?
) -> Int32 { -1 }
