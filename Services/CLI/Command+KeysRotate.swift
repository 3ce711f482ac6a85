import Cryptography
import JSON
import ServiceKit
import StorageAdmin

extension Command {
    static let keysStatus = Command(
        "keys status",
        "Count sealed values by master key"
    ) { arguments, context in
        let keys = try context.masterKeys()
        let usage = try await KeyUsage(keys, try await context.database().sealed)
        let exitCode: Int32 = usage.unreadable > 0 ? 1 : 0
        return arguments.answer(usage.json, lines: usage.rows, exitCode: exitCode)
    }

    static let keysRotate = Command(
        "keys rotate",
        "Seal all values again under the first master key"
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
        try await context.audit("keys rotate", "", [keys.primaryKeyID], status: exitCode)
        var words = "\(rotation.rotated) sealed again under \(keys.primaryKeyID)"
        if end == .interrupted {
            words += "\n\(usage.behind) are left: carillon keys rotate continues with them"
        } else if usage.behind == 0 {
            words += "\nonce every service runs with this list, the other keys may go"
        } else if rotation.unreadable == 0 {
            words +=
                "\n\(usage.behind) came under another key meanwhile: a service still runs with an"
                + " older list; once none does, carillon keys rotate"
        }
        return arguments.answer(
            [
                "sealsWith": .string(keys.primaryKeyID), "rotated": JSONValue(rotation.rotated),
                "unreadable": JSONValue(rotation.unreadable), "left": JSONValue(usage.behind),
            ],
            words,
            exitCode: exitCode
        )
    }
}

/// The counts of sealed values by key.
struct KeyUsage {
    private let keys: KeyRing
    /// The counts by the key's id; `?` for values that name no key.
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
        // There are too many payloads to open them all. Only those under a key that is not in the
        // ring count as closed.
        for head in try await sealed.secureHeads() {
            let id = KeyRing.keyID(of: head.head) ?? "?"
            payloads[id, default: 0] += head.count
            if !keys.keyIDs.contains(id) { closed[id, default: 0] += head.count }
        }
    }

    private var ids: [String] { Set(values.keys).union(payloads.keys).sorted() }

    private func count(_ id: String) -> Int { values[id, default: 0] + payloads[id, default: 0] }

    var unreadable: Int { closed.values.reduce(0, +) }

    /// The number of values under another key than the first.
    var behind: Int {
        ids.filter { $0 != keys.primaryKeyID }.reduce(0) { $0 + count($1) }
    }

    /// The unused keys of the list, except for the first.
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
