/// A new sync count of a dataset, here or in another system.
package struct DatasetChange: Sendable, Equatable {
    package var pool: String
    package var identity: String
    package var dataset: String
    package var syncCount: Int
    /// The device that wrote it, if the writer names one.
    package var device: String?
    /// Whether Carillon wrote it, so that its tables have the current dataset.
    package var isOwn: Bool

    package init(
        pool: String,
        identity: String,
        dataset: String,
        syncCount: Int,
        device: String? = nil,
        isOwn: Bool = false
    ) {
        self.pool = pool
        self.identity = identity
        self.dataset = dataset
        self.syncCount = syncCount
        self.device = device
        self.isOwn = isOwn
    }
}
