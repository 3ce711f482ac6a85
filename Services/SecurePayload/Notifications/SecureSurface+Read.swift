import Cryptography
import Gateway
import HTTPServer
import JSON
import Observability
import PushCore
import PushEvents
import SecureStorage

extension SecureSurface {
    /// `GET /api/notifications/{id}`: returns the content to its reader. A backend gets the
    /// content's entry in the list instead.
    func read(_ call: SecureCall) async throws -> HTTPServerResponse {
        switch call.caller {
        case .appKey: throw SecureRefusal.notEnough
        case .backend(let caller):
            let found = try await database.securePayloads.find(call.id, app: caller.appID)
            guard let found else { throw SecureRefusal.notFound }
            return .json(.object(found.object))
        case .reader(let reader):
            try requireNotLimited(reader)
            let asks = reader.reader(naming: call.request.queryValue("installation"))
            if call.request.method == .head {
                guard try await database.securePayloads.exists(call.id, for: asks) else {
                    throw notFound(reader)
                }
                return .empty(200)
            }
            return try await read(call.id, by: reader, asks)
        }
    }

    private func read(
        _ id: String,
        by reader: AuthenticatedReader,
        _ asks: SecureReader
    ) async throws -> HTTPServerResponse {
        let store = database.securePayloads
        guard let content = try await store.look(id, for: asks) else { throw notFound(reader) }
        // The content is opened first, as content that cannot be opened must not be marked as read.
        let text = try text(of: content)
        var wasRead = true
        if !content.wasRead || !content.isNoted {
            let marked = try await store.markRead(
                content,
                grace: readGrace,
                confirming: content.confirmed(at: .now()).record(topics: topics)
            )
            guard let marked else { throw notFound(reader) }
            wasRead = marked
        }
        metrics.read(isFirst: !wasRead)
        var object: JSONObject = [
            "Id": SecureID.json(id), "Payload": .string(text), "Read": .bool(wasRead),
        ]
        if content.isSealed { object["Sealed"] = .string(SealedForDevice.name) }
        return .secret(object)
    }

    /// - Throws: 500 if the content was changed, or was moved here from another row.
    private func text(of content: SecureContent) throws -> String {
        if content.isSealed { return Base64.encodeURL(content.bytes) }
        do throws(CryptographyError) {
            let bytes = try keys.open(content.bytes, context: content.context)
            return String(decoding: bytes, as: UTF8.self)
        } catch {
            log.error(
                "a secure payload does not open",
                [.app: .string(content.app), .error: .string("\(error)")]
            )
            throw SecureRefusal.tampered
        }
    }

    /// `DELETE /api/notifications/{id}`: deletes content that a device has received, or that its backend
    /// withdraws.
    func delete(_ call: SecureCall) async throws -> HTTPServerResponse {
        switch call.caller {
        case .appKey: throw SecureRefusal.notEnough
        case .backend(let caller):
            guard try await database.securePayloads.delete(call.id, app: caller.appID) else {
                throw SecureRefusal.notFound
            }
        case .reader(let reader):
            try requireNotLimited(reader)
            let asks = reader.reader(naming: call.request.queryValue("installation"))
            guard try await database.securePayloads.delete(call.id, for: asks) else {
                throw notFound(reader)
            }
        }
        return .empty(204)
    }

    // MARK: Lists

    private static let pageSizes = 1...SecurePayloadStore.maximumPage
    private static let usualPageSize = 100
    /// The parameters that only a backend's list may have.
    private static let backendQueries = ["identity", "limit", "after"]

    /// `GET /api/notifications`: lists the content that waits for the reader. A backend gets a list
    /// of all that it stored.
    func list(_ call: SecureCall) async throws -> HTTPServerResponse {
        switch call.caller {
        case .appKey: throw SecureRefusal.notEnough
        case .backend(let caller): return try await list(call, of: caller.appID)
        case .reader(let reader):
            guard Self.backendQueries.allSatisfy({ call.request.queryValue($0) == nil }) else {
                throw SecureRefusal.notEnough
            }
            let waiting = try await database.securePayloads.waiting(
                for: reader.reader(naming: call.request.queryValue("installation"))
            )
            return .json([
                "notifications": .array(
                    waiting.map { entry in
                        [
                            "Id": SecureID.json(entry.id),
                            "createdAt": .string(entry.createdAt.iso8601),
                            "expiresAt": .string(entry.expiresAt.iso8601),
                        ]
                    }
                )
            ])
        }
    }

    private func list(_ call: SecureCall, of app: String) async throws -> HTTPServerResponse {
        let identity = call.request.queryValue("identity")
        if let identity {
            call.context.note(identity)
            if let problem = SecureIdentity.problem(identity) { throw SecureRequestError(problem) }
        }
        var limit = Self.usualPageSize
        if let text = call.request.queryValue("limit") {
            guard let stated = Int(text), Self.pageSizes.contains(stated) else {
                throw SecureRequestError(
                    "limit must be a number of 1 to \(Self.pageSizes.upperBound)"
                )
            }
            limit = stated
        }
        var after: SecureCursor?
        if let text = call.request.queryValue("after") {
            guard let cursor = SecureCursor(text) else {
                throw SecureRequestError("after must be what a page before gave as next")
            }
            after = cursor
        }
        let page = try await database.securePayloads.list(
            app: app,
            identity: identity,
            limit: limit,
            after: after
        )
        return .json([
            "notifications": .array(page.entries.map { .object($0.object) }),
            "next": page.next.map { .string($0.text) } ?? .null,
        ])
    }
}

extension SecurePush {
    /// The event id of the push. It depends only on the content's id, so that there is one push for it.
    var eventID: String { Self.eventID(of: id) }

    static func eventID(of id: String) -> String { "secure/\(id)" }
}

extension SecureContent {
    /// Returns the record of the first read by this reader.
    fileprivate func confirmed(at now: Instant) -> ConfirmedReadRecord {
        ConfirmedReadRecord(
            app: app,
            pushID: pushID,
            eventID: SecurePush.eventID(of: id),
            identity: identity,
            installationID: device,
            at: now
        )
    }
}

extension SecureEntry {
    /// The entry as the backend sees it.
    fileprivate var object: JSONObject {
        [
            "Id": SecureID.json(id), "identity": .string(identity), "pushId": .string(pushID),
            "state": .string(state.rawValue), "Read": .bool(readAt != nil),
            "readAt": readAt.map { .string($0.iso8601) } ?? .null,
            "createdAt": .string(createdAt.iso8601), "expiresAt": .string(expiresAt.iso8601),
            "readOnce": .bool(readOnce), "sealed": .bool(isSealed),
        ]
    }
}
