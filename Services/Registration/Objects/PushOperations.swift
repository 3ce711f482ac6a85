import Gateway
import JSON
import Outbox
import PushCore
import PushStorage

/// Accepts pushes of callers: a caller that may not query the audience is refused before anything is stored.
struct PushOperations: Sendable {
    let acceptance: PushAcceptance

    /// Accepts a push request (`PushRequest`) without the fields that name an event. A repeat
    /// returns the first push, which is sent once. A repeat has the same request key within five
    /// minutes, or the same event id at any time.
    ///
    /// - Returns: The stored push; that of the first request, if this is a repeat.
    /// - Throws: `PushRequestError` if it cannot be sent, `PushTooLarge`, `TooManyScheduled`, and
    ///   `ObjectError` 119 if the caller may not query the audience.
    func accept(
        _ body: JSONObject,
        requestKey: String? = nil,
        eventID: String? = nil,
        caller: Caller
    ) async throws -> StoredPush {
        guard caller.mayPush else { throw ObjectError.masterKeyNeeded(for: "Sending a push") }
        for field in ["app", "id", "source"] where body[field] != nil {
            throw ObjectError(
                code: 1,
                "\(field) belongs to a record on Kafka; over HTTP it is not taken."
            )
        }
        let source = PushIdentity.httpSource
        let event =
            eventID.map { PushAcceptance.Event(app: caller.appID, source: source, id: $0) }
            ?? .anonymous(app: caller.appID, source: source)
        let validated = try acceptance.validate(
            body,
            event,
            includesPushID: caller.includesPushIDs,
            now: acceptance.clock.now()
        )
        try caller.requireQueryAllowed(validated.audience)
        try caller.countPush()
        let push = try await acceptance.accept(validated, requestKey: requestKey)
        caller.context?.note(push.id)
        return push
    }

    /// Accepts several pushes that their caller sees as one, all or none.
    ///
    /// - Parameters:
    ///   - requests: Each with the source that distinguishes it from the others.
    ///   - eventID: The event id of all of them.
    ///   - neighbours: The event ids that an earlier try of this call may have used; see
    ///     `PushStore`.
    ///   - caller: The caller.
    /// - Returns: The stored pushes; those of the first request, if this is a repeat.
    /// - Throws: As for one push.
    func accept(
        _ requests: [(object: JSONObject, source: String)],
        as eventID: String,
        neighbours: [String],
        caller: Caller
    ) async throws -> PushStore.AcceptedGroup {
        guard caller.mayPush else { throw ObjectError.masterKeyNeeded(for: "Sending a push") }
        let now = acceptance.clock.now()
        let validated = try requests.map { request in
            let event = PushAcceptance.Event(
                app: caller.appID,
                source: request.source,
                id: eventID
            )
            let validated = try acceptance.validate(
                request.object,
                event,
                includesPushID: caller.includesPushIDs,
                now: now
            )
            try caller.requireQueryAllowed(validated.audience)
            return validated
        }
        try caller.countPush()
        caller.context?.note(eventID)
        return try await acceptance.accept(
            group: eventID,
            neighbours: neighbours,
            app: caller.appID,
            validated
        )
    }
}
