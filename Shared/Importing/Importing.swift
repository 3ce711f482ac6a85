/// Moves installations in from the exports of other platforms.
///
/// Flow: `ImportSource` (bytes, decompressed) → `RecordSplitter` (one record each) → `RecordReader`
/// (an installation, or the reason of its rejection) → `ImportRun` (batches, each a transaction with
/// the progress of its `ImportJob`).
///
/// Authority: the formats of the exports. The installations themselves are validated by the code of
/// the HTTP surfaces, and written by `InstallationImport`.
///
/// States of a job: running, paused, stopped, failed, finished. A paused, stopped or failed job can
/// run again, from the byte after its last committed batch. A process that ends in any way leaves a job
/// that is running; the next one takes it over, and the old one, if it is alive, stops at its next
/// batch. So no line is lost or imported twice.
///
/// Bounds: one batch is written while the next is read. A batch has at most 1,000 records and 4 MiB, a
/// record 1 MiB; a longer record is rejected unread.
///
/// Shutdown: the task of a run may be cancelled at any time. `ImportRun.stop` ends it after a batch.
package enum ImportFormat: String, Sendable, CaseIterable {
    /// LeanCloud's export of `_Installation`.
    case leancloud
    /// `mongoexport` of a Parse Server's `_Installation`.
    case parse
    /// Lines of values, with a header line.
    case csv
    /// The endpoints of an Amazon SNS platform application, as the AWS CLI lists them.
    case sns
    /// The registrations or installations of an Azure notification hub.
    case azure

    /// The name for people.
    package var title: String {
        switch self {
        case .leancloud: "LeanCloud"
        case .parse: "Parse"
        case .csv: "CSV"
        case .sns: "Amazon SNS"
        case .azure: "Azure Notification Hubs"
        }
    }

    /// The members of a document that hold its records.
    var containers: [String] {
        switch self {
        case .leancloud, .parse: ["results"]
        case .sns: ["Endpoints"]
        case .azure: ["value", "installations"]
        case .csv: []
        }
    }
}

/// The limits of a record and of a batch.
package enum ImportLimits {
    package static let recordBytes = 1 << 20
    package static let batchBytes = 4 << 20
    /// The depth and the number of values of one JSON record, as in a request of a surface.
    static let depth = 32
    static let values = 20_000
    /// The line of a CSV file's header.
    static let columns = 500
    /// The rejected lines that are stored.
    package static let storedRejections = 1000
    /// The different reasons that are counted apart.
    static let reasons = 200
    /// The lines of a reason that are stored as examples.
    static let examples = 5
}

/// The failure of a whole import. Safe to show: it never contains a value of the file.
package struct ImportError: Error, Equatable, Sendable, CustomStringConvertible {
    package enum Kind: Sendable, Equatable {
        /// The file, the mapping or the format is wrong: the import cannot begin.
        case unusable
        /// The file ends or breaks at some place: everything before is imported.
        case broken
        /// The job is not running any more, or another process runs it.
        case taken
    }

    package let kind: Kind
    package let description: String

    package init(_ kind: Kind, _ description: String) {
        self.kind = kind
        self.description = description
    }
}
