/// The lane of a delivery. Raw values are those of the schema.
package enum Lane: Int, CaseIterable, Sendable {
    /// Devices named one by one: tokens, installations, identities.
    case direct = 0
    /// An audience that is sent shard by shard.
    case broadcast = 1
}
