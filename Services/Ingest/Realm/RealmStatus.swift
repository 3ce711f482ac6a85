import IngestStorage
import JSON
import Observability

/// The figures of each app's Realm clients, until they are added to the database's. All
/// loops share one. Thread-safe, and bounded: names come from the clients.
final class RealmStatus: Sendable {
    private static let maximumEntries = 4096
    private static let maximumNameBytes = 64

    private let lock = Lock()
    nonisolated(unsafe) private var counts: [RealmFigure.Key: Int] = [:]

    /// Notes a sign-in, with the device that the client describes.
    func signedIn(_ app: String, _ provider: RealmProvider, device: JSONValue?) {
        let sdk = Self.name(device?["sdk"]?.string)
        let version = Self.name(device?["sdkVersion"]?.string)
        let core = Self.name(device?["coreVersion"]?.string)
        add(app, .client, "\(sdk) \(version), core \(core)")
        add(app, .signIn, provider.rawValue)
    }

    /// Notes a socket, whose client names its core alone.
    func connected(_ app: String, agent: String) {
        let parts = agent.split(separator: " ", maxSplits: 1)[...]
        let isKnown = parts.first?.hasPrefix("RealmSync/") == true
        add(app, .core, isKnown ? Self.name(parts.first.map { String($0.dropFirst(10)) }) : "other")
    }

    func stored(_ app: String, objects: Int, refused: Int, unreadable: Int) {
        add(app, .objects, "stored", objects)
        add(app, .objects, "refused", refused)
        add(app, .objects, "unreadable", unreadable)
    }

    func complained(_ app: String, code: Int64) {
        add(app, .complaint, String((0...999).contains(code) ? code : -1))
    }

    /// Takes all figures; `giveBack` if they could not be stored.
    func take() -> [RealmFigure] {
        lock.withLock {
            defer { unsafe counts = [:] }
            return unsafe counts.map { RealmFigure($0.key, count: $0.value) }
        }
    }

    func giveBack(_ figures: [RealmFigure]) {
        for figure in figures {
            add(figure.key.app, figure.key.kind, figure.key.name, figure.count)
        }
    }

    private func add(_ app: String, _ kind: RealmFigure.Kind, _ name: String, _ count: Int = 1) {
        guard count > 0 else { return }
        let key = RealmFigure.Key(app: app, kind: kind, name: name)
        lock.withLock {
            let (isKnown, isFull) = unsafe (
                counts[key] != nil, counts.count >= Self.maximumEntries
            )
            guard isKnown || !isFull else { return }
            unsafe counts[key, default: 0] += count
        }
    }

    private static func name(_ text: String?) -> String {
        let bytes = (text ?? "").utf8.filter { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"),
                UInt8(ascii: "_"):
                true
            default: false
            }
        }
        .prefix(maximumNameBytes)
        return bytes.isEmpty ? "unknown" : String(decoding: bytes, as: UTF8.self)
    }
}
