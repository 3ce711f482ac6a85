/// Which queue a delivery belongs to. Raw values are those of the schema.
package enum Lane: Int, CaseIterable, Sendable {
    /// Named one by one: tokens, installations, identities.
    case direct = 0
    /// Of an audience that is sent shard by shard.
    case broadcast = 1
}
