import AzureHub
import Cryptography
import Gateway
import HTTPServer
import InstallationStorage
import JSON
import PushCore

/// Registrations, the model before installations. A registration is a row of `installations`.
extension AzureSurface {
    var registrationRoutes: [SurfaceRoute] {
        onRegistrations(.post, "", .listen) { try await createRegistration($0, $1) }
            + onRegistrations(.get, "", .listen) { try await listRegistrations($0, $1) }
            + onRegistrations(.put, "/:id", .listen) { try await putRegistration($0, $1) }
            + onRegistrations(.get, "/:id", .listen) { try await getRegistration($0, $1) }
            + onRegistrations(.delete, "/:id", .listen) { try await deleteRegistration($0, $1) }
            + on(.get, "tags/:tag/registrations", .manage) {
                try await listRegistrations(withTag: $0, $1)
            }
            + ["registrationids", "registrationIDs"].flatMap { path in
                on(.post, path, .listen, action: "POST /:hub/registrationids") { request, _ in
                    Self.newRegistrationID(request)
                }
            }
    }

    /// Returns the routes of a path under both spellings of the collection: SDKs of phones write it
    /// with a capital.
    private func onRegistrations(
        _ method: HTTPMethod,
        _ path: String,
        _ right: AzureRight,
        _ handler:
            @escaping @Sendable (HTTPServerRequest, Caller) async throws -> HTTPServerResponse
    ) -> [SurfaceRoute] {
        ["registrations", "Registrations"].flatMap { collection in
            on(
                method,
                collection + path,
                right,
                action: "\(method.rawValue) /:hub/registrations\(path)",
                handler
            )
        }
    }

    // MARK: One

    /// Returns a random id that cannot be guessed: a client that has it may write and read the
    /// registration.
    private static func makeRegistrationID() -> String {
        func number() -> UInt64 { randomBytes(8).reduce(0) { $0 << 8 | UInt64($1) } >> 1 }
        return "\(number())-\(number())-1"
    }

    private static func newRegistrationID(_ request: HTTPServerRequest) -> HTTPServerResponse {
        var response = HTTPServerResponse.empty(201)
        response.headers["Location"] = request.location("registrationids", makeRegistrationID())
        return response
    }

    private func createRegistration(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        try await save(Self.makeRegistrationID(), .any, request, caller)
    }

    /// Creates or replaces a registration; with `If-Match` it only replaces.
    private func putRegistration(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let id = try request.registrationID()
        guard !id.hasPrefix(HubRegistrationEntry.installationPrefix) else {
            throw AzureError.registrationGone
        }
        let match = try request.header("if-match").map(ETagMatch.init) ?? .any
        return try await save(id, match, request, caller)
    }

    private func save(
        _ id: String,
        _ match: ETagMatch,
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let wanted = try HubInstallation(
            entry: request.body,
            contentType: request.header("content-type"),
            id: id
        )
        let saved = try await save(wanted, of: caller, namesChannel: true) { existing in
            let before = existing.map(HubInstallation.init)
            guard existing == nil || before?.registration != nil else {
                throw AzureError.registrationGone
            }
            try match.check(before?.registration?.eTag)
            var wanted = wanted
            let now = Instant.now().milliseconds
            wanted.registration?.eTag = max((before?.registration?.eTag ?? 0) + 1, now)
            return (existing ?? .fresh(caller.appID), wanted)
        }
        return try Self.answer(saved, id, request)
    }

    private func getRegistration(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let id = try request.registrationID()
        if let objectID = Self.objectID(id) {
            try caller.require(.manage)
            guard
                let found = try await database.installations.find(
                    app: caller.appID,
                    objectID: objectID
                ), !found.isHubRegistration
            else { throw AzureError.registrationNotFound }
            return try Self.answer(found, id, request)
        }
        guard let found = try await find(id, of: caller.appID), found.isHubRegistration else {
            throw AzureError.registrationNotFound
        }
        return try Self.answer(found, id, request)
    }

    /// Returns the id of the installation that a registration shows; `nil` for a registration of its own.
    private static func objectID(_ id: String) -> String? {
        guard id.hasPrefix(HubRegistrationEntry.installationPrefix) else { return nil }
        return String(
            id.dropFirst(HubRegistrationEntry.installationPrefix.count).prefix {
                $0 != "-"
            }
        )
    }

    private static func answer(
        _ installation: Installation,
        _ id: String,
        _ request: HTTPServerRequest
    ) throws(AzureError) -> HTTPServerResponse {
        let entries = HubRegistrationEntry.entries(of: installation)
        guard let entry = entries.first(where: { $0.id.isSame(as: id) }) else {
            throw .registrationNotFound
        }
        return HTTPServerResponse(
            status: 200,
            headers: [
                "Content-Type": "application/atom+xml;type=entry;charset=utf-8",
                "ETag": entry.entityTag,
            ],
            body: Array(entry.xml(at: request.registrationsBase).utf8)
        )
    }

    private func deleteRegistration(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let id = try request.registrationID()
        guard let header = request.header("if-match") else {
            throw AzureError(status: 412, "If-Match must be there: an ETag, or *")
        }
        let match = try ETagMatch(header)
        guard Self.objectID(id) == nil else {
            throw AzureError(
                status: 409,
                "the registration is of an installation: delete that, or change it"
            )
        }
        guard let found = try await find(id, of: caller.appID), found.isHubRegistration else {
            throw AzureError.registrationNotFound
        }
        let deleted: Int
        if case .exactly(let eTag) = match {
            let path = WherePath(segments: [HubTemplate.field, "registration", "eTag"])
            deleted = try await database.installations.delete(
                app: caller.appID,
                objectIDs: [found.objectID],
                where: .field(path, .equal(.integer(eTag)))
            )
        } else {
            deleted = try await database.installations.delete(
                app: caller.appID,
                objectIDs: [found.objectID]
            )
        }
        guard deleted > 0 else { throw AzureError.eTagChanged }
        return .empty(200)
    }

    // MARK: Lists

    /// Lists registrations. With the app key, a client lists those of a channel that it names; only
    /// the full key lists all, as that list shows every phone.
    private func listRegistrations(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        guard let text = request.query("$filter"), !text.isEmpty else {
            try caller.require(.manage)
            return try await page(.all, request, caller) { _ in true }
        }
        let filter = try RegistrationFilter(text)
        return try await page(.channel(filter.platforms, filter.tokens), request, caller) {
            filter.holds(for: $0)
        }
    }

    private func listRegistrations(
        withTag request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let tag = request.pathParameters["tag"] ?? ""
        let expression: TagExpression
        do throws(TagExpressionError) {
            expression = try TagExpression.parse(tag)
        } catch {
            throw AzureError(error.description)
        }
        guard case .tag = expression else {
            guard case .installation = expression else {
                throw AzureError("the path names one tag, or one $InstallationId:{…}")
            }
            return try await page(.condition(expression.condition()), request, caller) { _ in true }
        }
        // A template's tags are stored separately from the device's tags.
        var arms = [expression.condition()]
        arms.append(
            .field(
                WherePath(segments: [HubTemplate.field, "templateNames"]),
                .equal(.string(tag))
            )
        )
        for name in try await database.hubTemplates.names(app: caller.appID) {
            let path = [HubTemplate.field, "templates", HubTemplate.key(name), "tags"]
            arms.append(.field(WherePath(segments: path), .equal(.string(tag))))
        }
        return try await page(.condition(.any(arms)), request, caller) { entry in
            entry.tags.holds(tag)
        }
    }

    private static let maximumPage = 100

    private func page(
        _ selection: InstallationStore.RegistrationSelection,
        _ request: HTTPServerRequest,
        _ caller: Caller,
        _ isWanted: (HubRegistrationEntry) -> Bool
    ) async throws -> HTTPServerResponse {
        let limit: Int
        if let text = request.query("$top") {
            guard let number = Int(text), number > 0 else {
                throw AzureError("$top must be a positive number")
            }
            limit = min(number, Self.maximumPage)
        } else {
            limit = Self.maximumPage
        }
        var place =
            try request.query("continuationtoken").map(ListPlace.init(token:)) ?? ListPlace()
        var entries: [HubRegistrationEntry] = []
        var next: ListPlace?
        // A page of rows may contain no match, and does not end the list.
        while next == nil {
            let rows = try await database.installations.registrations(
                app: caller.appID,
                selection,
                from: place.objectID,
                limit: limit + 1
            )
            for row in rows {
                let all = HubRegistrationEntry.entries(of: row).filter(isWanted)
                let skipped = row.objectID == place.objectID ? place.skipped : 0
                for (index, entry) in all.enumerated().dropFirst(skipped) {
                    if entries.count == limit, next == nil {
                        next = ListPlace(objectID: row.objectID, skipped: index)
                    }
                    if entries.count < limit { entries.append(entry) }
                }
                if next != nil { break }
            }
            guard rows.count > limit, let last = rows.last else { break }
            // The next page begins with the last row again, and skips all its entries.
            place = ListPlace(objectID: last.objectID, skipped: .max)
        }
        let base = request.registrationsBase
        var response = HTTPServerResponse(
            status: 200,
            headers: ["Content-Type": "application/atom+xml;type=feed;charset=utf-8"],
            body: []
        )
        var link: String?
        if let next {
            response.headers["X-MS-ContinuationToken"] = next.token
            link = "\(base)?continuationtoken=\(next.token)"
        }
        response.body = Array(HubRegistrationEntry.feed(entries, at: base, next: link).utf8)
        return response
    }
}

extension AzureError {
    /// Clients then create a new id and start again.
    static let registrationGone = AzureError(
        status: 410,
        "The registration id cannot be used; create another"
    )
    static let registrationNotFound = AzureError(status: 404, "Registration not found")
    static let eTagChanged = AzureError(status: 412, "The registration has another ETag")
}

/// `If-Match`: `*`, `"1"` or `W/"1"`.
enum ETagMatch: Equatable {
    /// No condition: the registration may be missing.
    case any
    case present
    case exactly(Int64)
    /// An ETag that is not ours.
    case never

    init(_ header: String) throws(AzureError) {
        var text = header.drop { $0 == " " }
        if text == "*" {
            self = .present
            return
        }
        if text.hasPrefix("W/") || text.hasPrefix("w/") { text = text.dropFirst(2) }
        if text.hasPrefix("\""), text.hasSuffix("\""), text.count >= 2 {
            text = text.dropFirst().dropLast()
        }
        guard !text.isEmpty else { throw AzureError(status: 412, "If-Match must be an ETag, or *") }
        self = Int64(text).map(ETagMatch.exactly) ?? .never
    }

    /// Checks the condition.
    ///
    /// - Parameter eTag: The stored ETag; `nil` if the registration is missing.
    /// - Throws: `AzureError` 404 or 412 if the condition fails.
    func check(_ eTag: Int64?) throws(AzureError) {
        guard self != .any else { return }
        guard let eTag else { throw .registrationNotFound }
        guard self == .present || self == .exactly(eTag) else { throw .eTagChanged }
    }
}

/// A list's `$filter`: one channel.
struct RegistrationFilter: Equatable {
    private let handleName: String
    let platforms: [Platform]
    /// The spellings under which the token may be stored.
    let tokens: [String]

    /// Parses `DeviceToken eq 'AB'`. Property names are matched in any case.
    init(_ text: String) throws(AzureError) {
        let parts = text.split(separator: " ", maxSplits: 2, omittingEmptySubsequences: true)
        guard parts.count == 3, parts[1].lowercased() == "eq" else {
            throw AzureError("$filter must be a channel's name, eq and a value in quotes")
        }
        var value = parts[2][...]
        while value.last == " " { value.removeLast() }
        guard value.count >= 2, value.first == "'", value.last == "'" else {
            throw AzureError("the value of $filter must be in single quotes")
        }
        let token = String(value.dropFirst().dropLast()).replacing("''", with: "'")
        handleName = parts[0].lowercased()
        switch handleName {
        case "devicetoken": platforms = [.apns]
        case "gcmregistrationid", "fcmregistrationid", "fcmv1registrationid": platforms = [.fcm]
        // .NET's SDK uses this name for the channels of all platforms.
        case "channeluri": platforms = Platform.allCases
        default: throw AzureError("$filter cannot ask for \"\(parts[0].prefix(60))\"")
        }
        // The JavaScript SDK escapes the value once more.
        var tokens = [token]
        if let decoded = percentDecoded(token) { tokens.append(decoded) }
        self.tokens = (tokens + tokens.map { $0.lowercased() }).withoutRepeats()
    }

    func holds(for entry: HubRegistrationEntry) -> Bool {
        switch handleName {
        case "channeluri": true
        case "fcmregistrationid": entry.platform.handleName == "GcmRegistrationId"
        default: entry.platform.handleName?.lowercased() == handleName
        }
    }
}

/// The position in a list.
struct ListPlace: Equatable {
    var objectID = ""
    /// The number of registrations of that row that earlier pages contain.
    var skipped = 0

    /// The token of the next page, in an alphabet without escapes, as clients do not escape it.
    var token: String { Base64.encodeURL(Array("\(skipped) \(objectID)".utf8)) }

    init() {}

    init(objectID: String, skipped: Int) {
        self.objectID = objectID
        self.skipped = skipped
    }

    init(token: String) throws(AzureError) {
        guard !token.isEmpty else {
            self.init()
            return
        }
        let bytes = (try? Base64.decodeURL(token)) ?? []
        let parts = String(decoding: bytes, as: UTF8.self).split(separator: " ")
        guard parts.count == 2, let skipped = Int(parts[0]), skipped >= 0,
            parts[1].utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f })
        else { throw AzureError("the continuation token is not one that this list gave") }
        self.init(objectID: String(parts[1]), skipped: skipped)
    }
}

extension HTTPServerRequest {
    fileprivate func registrationID() throws(AzureError) -> String {
        let id = pathParameters["id"] ?? ""
        guard (1...256).contains(id.utf8.count), id.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7f })
        else { throw AzureError("a registration's id is 1 to 256 bytes of text") }
        return id
    }

    /// Returns a query parameter; its name is matched in any case.
    fileprivate func query(_ name: String) -> String? {
        query.first { $0.name.lowercased() == name }?.value
    }

    fileprivate var registrationsBase: String {
        "\(outsideBase)/\(pathParameters["hub"] ?? "")/registrations"
    }
}
