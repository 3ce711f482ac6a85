import Cryptography
import EventLoop
import Gateway
import JSON
import JSONSchema
import Kafka
import PushCore
import PushEvents
import RealmSync

/// Makes records of uploads, slice by slice, so that neither memory nor a thread is taken for long.
/// On any thread, one at a time: its arrays are too large to be copied for each slice.
final class RealmReader: @unchecked Sendable {
    /// The records of some transactions, or of a part of one.
    struct Slice: Sendable {
        var records: [KafkaOutgoing] = []
        var bytes = 0
        /// The objects among the records; the others are dead letters.
        var objects = 0
        /// Why objects are refused, for the metrics.
        var refused: [RefusedObject] = []
        var unknownTypes = 0
        var unreadable: [String] = []
        /// Objects of two-way and embedded classes.
        var dropped = 0
        /// The uploads that end in this slice.
        var ended: [(ticket: RealmUpload.Ticket, changesets: [RealmStored])] = []
        /// Why the upload after those cannot be read at all.
        var fault: RealmFault?

        /// Objects, and transactions that cannot be decoded.
        var seen = 0
        /// Whether a long transaction is not decoded yet: others should have a turn.
        var isUnfinished = false

        var isFull: Bool {
            isUnfinished || bytes >= RealmReader.sliceBytes || seen >= RealmReader.sliceObjects
        }
    }

    private static let sliceBytes = 1 << 20
    private static let sliceObjects = 1000
    /// The refused objects of a transaction that are remembered for its client.
    private static let rememberedRefusals = 256

    private let app: String
    private let types: ExactStringMap<KnownType>
    private let topics: KafkaTopics
    private let receivedAt: Instant

    private var uploads: ArraySlice<RealmUpload>
    /// The transactions of the first upload that are not read.
    private var changesets: ArraySlice<RealmChangeset>?
    private var stored: [RealmStored] = []
    /// The first of them, while it is decoded.
    private var decoding: RealmDecoding?
    /// The objects of the first of them.
    private var objects: RealmObjects?
    private var index = 0
    private var refusals: [RealmRefusal] = []

    init(
        _ uploads: [RealmUpload],
        of app: String,
        _ types: ExactStringMap<KnownType>,
        _ topics: KafkaTopics,
        at receivedAt: Instant
    ) {
        self.uploads = uploads[...]
        self.app = app
        self.types = types
        self.topics = topics
        self.receivedAt = receivedAt
    }

    /// - Returns: `nil` at the end.
    func next() -> Slice? {
        guard !uploads.isEmpty else { return nil }
        var slice = Slice()
        let checker = SchemaChecker()
        while !slice.isFull, let upload = uploads.first {
            do throws(RealmFault) {
                if changesets == nil { changesets = try upload.changesets()[...] }
            } catch {
                slice.fault = error
                uploads = []
                return slice
            }
            while !slice.isFull, let changeset = changesets?.first {
                read(changeset, checker, into: &slice)
            }
            guard changesets?.isEmpty == true else { break }
            slice.ended.append((upload.ticket, stored))
            (changesets, stored) = (nil, [])
            uploads = uploads.dropFirst()
        }
        return slice
    }

    /// Reads some objects of a transaction, perhaps all.
    private func read(
        _ changeset: RealmChangeset,
        _ checker: SchemaChecker,
        into slice: inout Slice
    ) {
        if objects == nil {
            guard find(changeset, into: &slice) else { return }
        }
        while index < objects?.count ?? 0, !slice.isFull {
            if let object = objects?.object(at: index) { read(object, checker, into: &slice) }
            index += 1
            slice.seen += 1
        }
        guard index == objects?.count else { return }
        stored.append(RealmStored(changeset, refused: refusals))
        (objects, index, refusals) = (nil, 0, [])
        changesets = changesets?.dropFirst()
    }

    /// Finds the objects of a transaction.
    ///
    /// - Returns: False if they are not found yet, or cannot be.
    private func find(_ changeset: RealmChangeset, into slice: inout Slice) -> Bool {
        do throws(RealmChangesetFault) {
            if decoding == nil {
                decoding = RealmDecoding(changeset) { IngestID.derived(from: $0, digest: sha256) }
            }
            objects = try decoding?.step()
            slice.isUnfinished = objects == nil
            if objects != nil { decoding = nil }
        } catch {
            decoding = nil
            refuse(changeset, because: error, into: &slice)
            changesets = changesets?.dropFirst()
        }
        return objects != nil
    }

    private func read(
        _ object: RealmObject,
        _ checker: SchemaChecker,
        into slice: inout Slice
    ) {
        switch objects?.kind(of: object.className) {
        case .twoWay, .embedded:
            slice.dropped += 1
            return
        case .asymmetric, nil: break
        }
        do throws(RefusedObject) {
            guard let type = types[object.className], type.builtIn == nil else {
                slice.unknownTypes += 1
                throw RefusedObject(
                    pointer: "",
                    reason: "the app has no type of this name: carillon ingest type put"
                )
            }
            let (id, value) = try checked(object, type, checker)
            slice.bytes += id.utf8.count + value.count
            slice.objects += 1
            slice.records.append(
                KafkaOutgoing(
                    topic: topics.ingest(type.name),
                    key: Array(id.utf8),
                    value: value,
                    headers: Intake.headers(app: app, version: type.version, receivedAt: receivedAt)
                )
            )
        } catch {
            refuse(object, error, into: &slice)
        }
    }

    private func checked(
        _ object: RealmObject,
        _ type: KnownType,
        _ checker: SchemaChecker
    ) throws(RefusedObject) -> (id: String, value: [UInt8]) {
        if let fault = object.fault {
            throw RefusedObject(pointer: object.pointer, reason: fault.rawValue)
        }
        let filled = type.declaration.filled(object.document)
        let (id, kept) = try ObjectReader(type: type, checker: checker).read(.object(filled))
        let value = JSONValue.object(kept).bytes
        guard value.count <= ObjectLimits.bytes else { throw ObjectText.tooLarge(id) }
        return (id, value)
    }

    // MARK: Refusals

    private func refuse(
        _ object: RealmObject,
        _ refused: RefusedObject,
        into slice: inout Slice
    ) {
        slice.refused.append(refused)
        let reason =
            refused.pointer.isEmpty ? refused.reason : "\(refused.pointer): \(refused.reason)"
        if refusals.count < Self.rememberedRefusals {
            refusals.append(
                RealmRefusal(className: object.className, key: object.key, reason: reason)
            )
        }
        // A replay goes through the native route, which fills nothing.
        let declared = types[object.className]
        let filled = declared?.declaration.filled(object.document) ?? object.document
        let content = JSONValue.object(filled).bytes
        slice.append(
            Intake.deadLetter(
                content,
                refused,
                app: app,
                source: Intake.source(ofType: object.className),
                topics
            )
        )
    }

    private func refuse(
        _ changeset: RealmChangeset,
        because fault: RealmChangesetFault,
        into slice: inout Slice
    ) {
        let reason = "a transaction of a Realm client: \(fault)"
        slice.unreadable.append(reason)
        slice.seen += 1
        slice.append(
            Intake.deadLetter(
                Array(changeset.bytes),
                RefusedObject(pointer: "", reason: reason),
                app: app,
                source: Intake.realmSource,
                topics
            )
        )
        stored.append(RealmStored(changeset, refused: [], isUnreadable: true))
    }
}

extension RealmReader.Slice {
    fileprivate mutating func append(_ letter: KafkaOutgoing) {
        self.bytes += letter.value?.count ?? 0
        records.append(letter)
    }
}
