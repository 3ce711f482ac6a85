/// That a dataset has another count, here or in another system.
package struct DatasetChange: Sendable, Equatable {
    package var pool: String
    package var identity: String
    package var dataset: String
    package var syncCount: Int
    /// Who wrote it, where the writer says so.
    package var device: String?
    /// Whether it was written down here: then the dataset is what these tables say.
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
