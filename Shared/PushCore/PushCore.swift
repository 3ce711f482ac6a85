// PushCore holds the domain's values and its pure decisions: push requests and their audiences, the
// meaning of a provider's answer for a delivery, and the balance of the ledger.
//
// Nothing here has a clock, a socket or a lock. Times are passed as `Instant`, randomness as a
// number, hashes as a function, so that a test is a list of calls. Kafka and HTTP share this
// module, so a request has the same meaning on both.

/// A hash function that the caller passes (SHA-256: 32 bytes), as this module imports no library.
package typealias Digest = @Sendable ([UInt8]) -> [UInt8]
