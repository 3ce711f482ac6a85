import Cryptography
import JSON
import PushStorage
import ServiceKit

extension Command {
    static let keysStatus = Command(
        words: ["keys", "status"],
        summary: "counts what is sealed under which of CARILLON_MASTER_KEYS",
        options: [json]
    ) { arguments, context in
        let keys = try context.masterKeys()
        let usage = try await KeyUsage(keys, try await context.database().sealed)
        if arguments.has("--json") {
            Terminal.say(.object(usage.json))
        } else {
            Terminal.say(Terminal.table(usage.rows))
        }
        return usage.unreadable > 0 ? 1 : 0
    }

    static let keysRotate = Command(
        words: ["keys", "rotate"],
        summary: "seals everything anew under the first of CARILLON_MASTER_KEYS",
        options: [json]
    ) { arguments, context in
        let keys = try context.masterKeys()
        let sealed = try await context.database().sealed
        let rotation = KeyRotation(keys, sealed, on: context.loop)
        let end = try await rotation.run()
        let usage = try await KeyUsage(keys, sealed)
        let exitCode: Int32 =
            switch end {
            case .interrupted: Interruption.exitCode
            case .finished: rotation.unreadable > 0 ? 1 : 0
            }
        try await context.audit(
            "keys rotate",
            app: "",
            targets: [keys.primaryKeyID],
            status: exitCode
        )
        if arguments.has("--json") {
            Terminal.say([
                "sealsWith": .string(keys.primaryKeyID), "rotated": JSONValue(rotation.rotated),
                "unreadable": JSONValue(rotation.unreadable), "left": JSONValue(usage.behind),
            ])
            return exitCode
        }
        Terminal.say("\(rotation.rotated) sealed anew under \(keys.primaryKeyID)")
        if end == .interrupted {
            Terminal.say("\(usage.behind) are left: carillon keys rotate goes on with them")
        } else if usage.behind == 0 {
            Terminal.say("once every service runs with this list, the other keys may go")
        } else if rotation.unreadable == 0 {
            Terminal.say(
                "\(usage.behind) came under another key meanwhile: a service still runs with an"
                    + " older list; once none does, carillon keys rotate"
            )
        }
        return exitCode
    }
}

/// What is sealed under which key.
struct KeyUsage {
    private let keys: KeyRing
    /// By the key's id; `?` for what names none.
    private var values: [String: Int] = [:]
    private var payloads: [String: Int] = [:]
    private var closed: [String: Int] = [:]

    init(_ keys: KeyRing, _ sealed: SealedStore) async throws {
        self.keys = keys
        for value in try await sealed.all() {
            let id = KeyRing.keyID(of: value.sealed) ?? "?"
            values[id, default: 0] += 1
            let opens = (try? keys.open(value.sealed, context: value.context)) != nil
            if !opens { closed[id, default: 0] += 1 }
        }
        // These are too many to be opened: what the ring has no key for cannot be.
        for head in try await sealed.secureHeads() {
            let id = KeyRing.keyID(of: head.head) ?? "?"
            payloads[id, default: 0] += head.count
            if !keys.keyIDs.contains(id) { closed[id, default: 0] += head.count }
        }
    }

    private var ids: [String] { Set(values.keys).union(payloads.keys).sorted() }

    private func count(_ id: String) -> Int { values[id, default: 0] + payloads[id, default: 0] }

    var unreadable: Int { closed.values.reduce(0, +) }

    /// What is under another key than the first.
    var behind: Int {
        ids.filter { $0 != keys.primaryKeyID }.reduce(0) { $0 + count($1) }
    }

    /// Keys of the list that nothing is under, but for the first.
    private var idle: [String] { keys.keyIDs.dropFirst().filter { count($0) == 0 } }

    var json: JSONObject {
        func object(_ counts: [String: Int]) -> JSONValue {
            .object(
                JSONObject(counts.sorted { $0.key < $1.key }.map { ($0.key, JSONValue($0.value)) })
            )
        }
        return [
            "sealsWith": .string(keys.primaryKeyID), "toRotate": JSONValue(behind),
            "unreadable": JSONValue(unreadable),
            "keys": .object(JSONObject(ids.map { ($0, JSONValue(count($0))) })),
            "securePayloads": object(payloads),
            "mayGo": .array(idle.map(JSONValue.string)),
        ]
    }

    var rows: [[String]] {
        var rows = [["seals with", keys.primaryKeyID]]
        for id in ids {
            var line = "\(values[id, default: 0])"
            if let payloads = payloads[id] { line += ", and \(payloads) secure payload(s)" }
            if let closed = closed[id] { line += ", \(closed) cannot be opened" }
            rows.append(["under \(id)", line])
        }
        if behind > 0 { rows.append(["to do", "carillon keys rotate"]) }
        if !idle.isEmpty {
            rows.append([
                "may go",
                "\(idle.joined(separator: ", ")): nothing is under it, once every service seals with"
                    + " \(keys.primaryKeyID)",
            ])
        }
        return rows
    }
}
