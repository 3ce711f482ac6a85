import AzureHub
import Cryptography
import Gateway
import HTTPServer
import InstallationStorage
import JSON
import PushCore
import PushStorage
import Storage

extension AzureSurface {
    var messageRoutes: [SurfaceRoute] {
        on(.post, "messages", .send) { try await send($0, $1) }
            + on(
                .post,
                "messages/$batch",
                .send,
                maximumBodyBytes: Self.maximumBatchBytes
            ) { try await sendBatch($0, $1) }
            + on(.get, "messages/:id", .manage) { try await telemetry($0, $1) }
            + on(.post, "schedulednotifications", .send) { try await schedule($0, $1) }
            + on(.delete, "schedulednotifications/:id", .send) { try await cancel($0, $1) }
    }

    /// The limits of a full batch: a message and its tokens.
    private static let maximumBatchBytes = 5 * 1024 * 1024
    private static let maximumBatchTokens = 1000
    private static let maximumTestDevices = 10
    private static let maximumLead: Int64 = 7 * 86_400_000
    /// The time for which a test send waits for its outcomes.
    private static let testWait = Duration.seconds(10)

    // MARK: Sends

    private func send(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let message = try HubMessage(request.headers, body: request.body)
        let isTest = request.isSwitchedOn("test")
        var audience: HubAudience
        if request.isSwitchedOn("direct") {
            guard let token = request.header("servicebusnotification-devicehandle"), !token.isEmpty
            else { throw AzureError("the header ServiceBusNotification-DeviceHandle is missing") }
            guard request.header("servicebusnotification-tags") == nil else {
                throw AzureError("a direct send has a device handle, and no tags")
            }
            guard message.format != .template else {
                throw AzureError(
                    "a template belongs to an installation: it cannot be sent directly"
                )
            }
            audience = .tokens([token])
        } else {
            audience = .tags(try request.tags())
        }
        if isTest, case .tags(let expression) = audience {
            audience = .installations(try await testDevices(expression, message, caller))
        }
        let sent = try await accept(message, to: audience, at: nil, request, caller)
        var response = HTTPServerResponse.empty(201)
        if isTest { response = try await outcome(of: sent.pushes) }
        response.headers["Location"] = request.location("messages", sent.eventID)
        return response
    }

    private func sendBatch(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        guard request.isSwitchedOn("direct") else { throw AzureError("a batch is sent directly") }
        let parts = try MultipartBody.parse(
            request.body,
            contentType: request.header("content-type") ?? ""
        )
        guard let notification = parts.first(where: { $0.name == "notification" }),
            let devices = parts.first(where: { $0.name == "devices" })
        else { throw AzureError("a batch has the parts notification and devices") }
        let message = try HubMessage(
            request.headers,
            body: notification.body,
            contentType: notification.contentType
        )
        guard message.format != .template else {
            throw AzureError("a template belongs to an installation: it cannot be sent directly")
        }
        guard
            let list =
                (try? JSONValue.parse(devices.body, maximumValues: BodyLimits.valuesOfSmall))?
                .array,
            list.allSatisfy({ $0.string?.isEmpty == false })
        else { throw AzureError("devices is a JSON array of tokens") }
        guard (1...Self.maximumBatchTokens).contains(list.count) else {
            throw AzureError("devices holds 1 to \(Self.maximumBatchTokens) tokens")
        }
        let sent = try await accept(
            message,
            to: .tokens(list.compactMap(\.string)),
            at: nil,
            request,
            caller
        )
        var response = HTTPServerResponse.empty(201)
        response.headers["Location"] = request.location("messages", sent.eventID)
        return response
    }

    private func schedule(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let text = request.header("servicebusnotification-scheduletime")
        let now = database.clock.now()
        guard let time = text.flatMap({ HubTime.instant($0, now: now) }) else {
            throw AzureError("ServiceBusNotification-ScheduleTime must be an ISO 8601 time")
        }
        guard time <= now.adding(milliseconds: Self.maximumLead) else {
            throw AzureError("ServiceBusNotification-ScheduleTime lies more than 7 days ahead")
        }
        for name in ["direct", "test"] where request.isSwitchedOn(name) {
            throw AzureError("a scheduled notification cannot be sent with \(name)")
        }
        let message = try HubMessage(request.headers, body: request.body)
        let sent = try await accept(
            message,
            to: .tags(try request.tags()),
            at: time,
            request,
            caller
        )
        var response = HTTPServerResponse.empty(201)
        response.headers["Location"] = request.location("schedulednotifications", sent.eventID)
        return response
    }

    /// Cancels the pushes that still wait for their time.
    private func cancel(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let pushes = try await group(request, caller)
        var cancelled = 0
        for push in pushes {
            guard let id = push.scheduleID else { continue }
            if try await database.pushes.cancelScheduled(app: caller.appID, scheduleID: id) {
                cancelled += 1
            }
        }
        guard cancelled > 0 else { throw AzureError.notificationNotFound }
        return .empty(200)
    }

    // MARK: Outcomes

    private func telemetry(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let pushes = try await group(request, caller)
        let counts = try await database.deliveries.counts(of: pushes.map(\.id))
        let details = NotificationDetails(
            id: request.pathParameters["id"] ?? "",
            hub: request.pathParameters["hub"] ?? "",
            host: request.header("host") ?? "localhost",
            pushes: pushes,
            counts: counts
        )
        return AzureXML.response(details.xml, status: 200)
    }

    /// Returns the pushes of one send.
    ///
    /// - Throws: `AzureError` 404 if its id is unknown.
    private func group(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> [StoredPush] {
        let id = request.pathParameters["id"] ?? ""
        guard id.utf8.count == 32 else { throw AzureError.notificationNotFound }
        let found = try await database.pushes.find(eventID: id.lowercased(), app: caller.appID)
            .filter { $0.eventSource.hasPrefix(HubMessage.source + "/") }
        guard !found.isEmpty else { throw AzureError.notificationNotFound }
        return found
    }

    private func testDevices(
        _ expression: String?,
        _ message: HubMessage,
        _ caller: Caller
    ) async throws -> [String] {
        let requests = message.requests(
            to: .tags(expression),
            at: nil,
            templates: try await templateNames(message, caller)
        )
        var found: [String] = []
        for request in requests {
            let parsed = try PushRequest.parse(request.object, now: database.clock.now())
            guard case .installations(let selectors) = parsed.audience, !selectors.selectsNothing
            else { continue }
            let valid = Where.field(WherePath(segments: ["valid"]), .equal(.bool(true)))
            let devices = try await database.installations.query(
                app: caller.appID,
                where: .all([selectors.condition ?? .everything, valid]),
                limit: Self.maximumTestDevices
            )
            for device in devices
            where device.token != nil && !found.contains(device.objectID)
                && (message.format == .template || !device.isTemplateOnly)
            {
                found.append(device.objectID)
            }
        }
        return Array(found.prefix(Self.maximumTestDevices))
    }

    /// Waits for the outcomes of a test send; a delivery that has none within the time limit is shown as
    /// pending.
    private func outcome(of pushes: [String]) async throws -> HTTPServerResponse {
        let deadline = ContinuousClock.now + Self.testWait
        while true {
            let found = try await database.pushes.find(Set(pushes)).values
            let isOver = found.allSatisfy { [.done, .failed, .cancelled].contains($0.status) }
            if isOver || ContinuousClock.now >= deadline {
                let rows = try await database.deliveries.rows(
                    of: pushes,
                    limit: Self.maximumTestDevices * HubTemplate.maximumNames
                )
                return AzureXML.response(NotificationOutcome(rows).xml, status: 201)
            }
            try await Task.sleep(for: .milliseconds(100))
        }
    }

    // MARK: Acceptance

    private func templateNames(_ message: HubMessage, _ caller: Caller) async throws -> [String] {
        guard message.format == .template else { return [] }
        return try await database.hubTemplates.names(app: caller.appID)
    }

    /// Accepts the pushes of one send together. A repeat of a recent send, recognized by the
    /// client's request id, returns the pushes of that send.
    private func accept(
        _ message: HubMessage,
        to audience: HubAudience,
        at time: Instant?,
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> PushStore.AcceptedGroup {
        let requests = message.requests(
            to: audience,
            at: time,
            templates: try await templateNames(message, caller)
        )
        let ids = request.notificationIDs(app: caller.appID, now: .now())
        return try await pushes.accept(
            requests.map { ($0.object, $0.source) },
            as: ids.own,
            neighbours: ids.neighbours,
            caller: caller
        )
    }
}

extension HTTPServerRequest {
    /// - Throws: `AzureError` if the header is present and empty: such a send must not go to every phone.
    fileprivate func tags() throws(AzureError) -> String? {
        guard let tags = header("servicebusnotification-tags") else { return nil }
        do throws(TagExpressionError) {
            _ = try TagExpression.parse(tags)
        } catch {
            throw AzureError(error.description)
        }
        return tags
    }

    /// Returns an absolute URL. Clients read its third and its last segment.
    func location(_ collection: String, _ id: String) -> String {
        let version = queryValue("api-version") ?? ""
        let isPlain =
            (1...20).contains(version.utf8.count)
            && version.utf8.allSatisfy { ASCII.isAlphanumeric($0) || $0 == UInt8(ascii: "-") }
        return "\(outsideBase)/\(pathParameters["hub"] ?? "")/\(collection)/\(id)?api-version="
            + (isPlain ? version : "2015-01")
    }

    /// Returns the id of a send. If the client sends a request id, which it repeats on a retry,
    /// equal requests get the same id, and requests with any difference get different ones.
    ///
    /// - Returns: `own`, the id for the current span of time, and `neighbours`, the ids for the
    ///   span before, this one and the next, as a send and its retry may be on both sides of a
    ///   boundary.
    fileprivate func notificationIDs(
        app: String,
        now: Instant
    ) -> (own: String, neighbours: [String]) {
        guard let requestID = header("x-ms-client-request-id"), !requestID.isEmpty else {
            return (Hex.encode(randomBytes(16)), [])
        }
        var parts = [app, requestID, method.rawValue, rawTarget]
        let told = headers.filter { field in
            let name = field.name.lowercased()
            return name.hasPrefix("servicebusnotification-") || name.hasPrefix("apns-")
                || name.hasPrefix("x-wns-") || name.hasPrefix("x-windowsphone-")
        }
        parts += told.map { "\($0.name.lowercased()):\($0.value)" }.sorted()
        var text: [UInt8] = []
        for part in parts {
            text.append(contentsOf: part.utf8)
            text.append(0)
        }
        text += sha256(body)
        let span = now.seconds / PushStore.repeatsLast.components.seconds
        func id(_ span: Int64) -> String {
            Hex.encode(Array(sha256(text + Array("\(span)".utf8))[..<16]))
        }
        return (id(span), [id(span - 1), id(span), id(span + 1)])
    }
}
