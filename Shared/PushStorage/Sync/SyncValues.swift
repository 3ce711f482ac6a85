package import PushCore

/// An identity of a pool, and the app that whoever asks belongs to.
package struct SyncIdentity: Sendable, Equatable {
    package let pool: String
    package let app: String
    package let identity: String

    package init(pool: String, app: String, identity: String) {
        self.pool = pool
        self.app = app
        self.identity = identity
    }
}

/// One of an identity's datasets.
package struct SyncDatasetName: Sendable, Equatable {
    package let owner: SyncIdentity
    package let name: String

    package init(_ owner: SyncIdentity, _ name: String) {
        self.owner = owner
        self.name = name
    }
}

/// A dataset as it stands.
package struct SyncDataset: Sendable, Equatable {
    package var identity: String
    package var name: String
    package var syncCount: Int
    /// Those that are there; tombstones do not count.
    package var records: Int
    /// UTF-8 bytes of their keys and values.
    package var bytes: Int
    package var modifiedBy: String?
    package var createdAt: Instant
    package var modifiedAt: Instant
}

/// A record; without a value it was removed.
package struct SyncRecord: Sendable, Equatable {
    package var key: String
    package var value: String?
    package var syncCount: Int
    package var modifiedBy: String?
    package var modifiedAt: Instant
    package var deviceModifiedAt: Instant?
}

/// A change of one record: a value, or its removal.
package struct SyncPatch: Sendable, Equatable {
    package var key: String
    /// `nil`: it is removed.
    package var value: String?
    /// What its writer knows the record by; 0: it was never there.
    package var syncCount: Int
    package var deviceModifiedAt: Instant?

    package init(key: String, value: String?, syncCount: Int, deviceModifiedAt: Instant? = nil) {
        self.key = key
        self.value = value
        self.syncCount = syncCount
        self.deviceModifiedAt = deviceModifiedAt
    }
}

/// Bounds of what an identity may keep.
package enum SyncLimits {
    package static let datasets = 20
    package static let records = 1024
    /// Keys and values of what is there, keys of what was removed.
    package static let bytes = 1 << 20
    /// Counts that every client reads exactly.
    package static let counts = 1...1 << 53
    package static let datasetsPage = 64
}

/// Why the store does not do what it is asked for.
package enum SyncRefusal: Error, Equatable, Sendable {
    /// The pool is not linked to the app.
    case unknownPool
    case unknownDataset
    case unknownDevice
    case notSubscribed
    /// The pool does not push.
    case pushSyncOff
    case conflict(key: String, current: Int, sent: Int)
    case limit(String)
    /// A bulk publish is on its way.
    case bulkInProgress
    /// One ended well less than a day ago.
    case bulkDoneLately
}

/// What a page of records holds.
package struct SyncPage: Sendable, Equatable {
    package var records: [SyncRecord] = []
    package var exists = false
    package var syncCount = 0
    /// The count at which it was deleted last; 0: never.
    package var deletedCount = 0
    package var modifiedBy: String?
    package var hasMore = false
}

/// Where a page of records ended.
package struct SyncCursor: Sendable, Equatable {
    package var syncCount: Int
    package var key: String

    package init(syncCount: Int, key: String) {
        self.syncCount = syncCount
        self.key = key
    }
}
