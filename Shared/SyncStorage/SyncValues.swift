package import PushCore
import Storage

/// An identity of a pool, and the app of the caller.
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

/// The current state of a dataset.
package struct SyncDataset: Sendable, Equatable {
    package var identity: String
    package var name: String
    package var syncCount: Int
    /// The number of existing records, without tombstones.
    package var records: Int
    /// UTF-8 bytes of their keys and values.
    package var bytes: Int
    package var modifiedBy: String?
    package var createdAt: Instant
    package var modifiedAt: Instant
}

/// A record; without a value it is a tombstone.
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
    /// `nil`: the record is removed.
    package var value: String?
    /// The record's count as its writer knows it; 0: it never existed.
    package var syncCount: Int
    package var deviceModifiedAt: Instant?

    package init(key: String, value: String?, syncCount: Int, deviceModifiedAt: Instant? = nil) {
        self.key = key
        self.value = value
        self.syncCount = syncCount
        self.deviceModifiedAt = deviceModifiedAt
    }
}

/// The limits of an identity's storage.
package enum SyncLimits {
    package static let datasets = 20
    package static let records = 1024
    /// The limit of keys and values of existing records, and of keys of removed ones.
    package static let bytes = 1 << 20
    /// The counts that every client reads exactly.
    package static let counts = 1...1 << 53
    package static let datasetsPage = 64
}

/// The reason why the store refuses an operation.
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
    /// A bulk publish is running.
    case bulkInProgress
    /// A bulk publish ended less than a day ago.
    case bulkDoneLately
}

/// A page of records.
package struct SyncPage: Sendable, Equatable {
    package var records: [SyncRecord] = []
    package var exists = false
    package var syncCount = 0
    /// The count at which it was deleted last; 0: never.
    package var deletedCount = 0
    package var modifiedBy: String?
    package var hasMore = false
}

/// The position at which a page of records ended.
package struct SyncCursor: Sendable, Equatable {
    package var syncCount: Int
    package var key: String

    package init(syncCount: Int, key: String) {
        self.syncCount = syncCount
        self.key = key
    }
}
