import Door
import JSON
import Outbox
import PushCore
import PushStorage

/// Takes pushes in for callers: what one may not ask for is refused before anything is kept.
struct PushOperations: Sendable {
    let acceptance: PushAcceptance

    /// Takes a push request (`PushRequest`) without what names an event. The same request key within
    /// five minutes is the same push, sent once; the same event id always is.
    ///
    /// - Returns: The push as it is kept; that of the first time, where it is a repeat.
    /// - Throws: `PushRequestError` for what cannot be sent, `PushTooLarge`, `TooManyWaiting`, and
    ///   `ObjectError` 119 for what the caller may not ask of whom it is for.
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
        let judged = try acceptance.judge(
            body,
            event,
            tellsID: caller.tellsPushIDs,
            now: acceptance.clock.now()
        )
        try caller.requireAskable(judged.audience)
        try caller.countPush()
        let push = try await acceptance.accept(judged, requestKey: requestKey)
        caller.visit?.note(push.id)
        return push
    }

    /// Takes several that are one to whoever asked for them, all or none.
    ///
    /// - Parameters:
    ///   - requests: Each with the source that tells it from the others.
    ///   - eventID: Of them all.
    ///   - neighbours: The ids that the same call may have had; see `PushStore`.
    ///   - caller: Who asks.
    /// - Returns: What is kept; that of the first time, where it is a repeat.
    /// - Throws: As for one.
    func accept(
        _ requests: [(object: JSONObject, source: String)],
        as eventID: String,
        neighbours: [String],
        caller: Caller
    ) async throws -> PushStore.AcceptedGroup {
        guard caller.mayPush else { throw ObjectError.masterKeyNeeded(for: "Sending a push") }
        let now = acceptance.clock.now()
        let judged = try requests.map { request in
            let event = PushAcceptance.Event(
                app: caller.appID,
                source: request.source,
                id: eventID
            )
            let judged = try acceptance.judge(
                request.object,
                event,
                tellsID: caller.tellsPushIDs,
                now: now
            )
            try caller.requireAskable(judged.audience)
            return judged
        }
        try caller.countPush()
        caller.visit?.note(eventID)
        return try await acceptance.accept(
            group: eventID,
            neighbours: neighbours,
            app: caller.appID,
            judged
        )
    }
}
