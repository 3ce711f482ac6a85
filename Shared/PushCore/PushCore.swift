// PushCore holds the domain's values and its pure decisions: what a push request is, who may be
// named in one, what a provider's answer means for a delivery, and how the books balance.
//
// Nothing here has a clock, a socket or a lock. Times come in as `Instant`, randomness as a
// number, hashes as a function, so that a test is a list of calls. Kafka and HTTP share all of it:
// a request means the same whichever way it came.

/// A hash function that the caller brings (SHA-256: 32 bytes), as this room imports no library.
package typealias Digest = @Sendable ([UInt8]) -> [UInt8]
