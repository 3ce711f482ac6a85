package import PushCore

/// The version of an app's fields in a cache: it changes whenever a field is dropped, and differs
/// for an app that is created again under an old name.
package struct FieldsVersion: Hashable, Sendable {
    package var createdAt: Instant
    package var number: Int

    package init(createdAt: Instant, number: Int) {
        self.createdAt = createdAt
        self.number = number
    }
}
