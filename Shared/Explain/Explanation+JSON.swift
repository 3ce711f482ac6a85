package import JSON
import PushCore

extension Explanation {
    /// The explanation for programs.
    ///
    /// - Parameter showingContent: Whether the caller may see the push's content.
    /// - Returns: An object. Texts are English; `template` and `values` let a page translate the
    ///   sentence and the next step.
    package func json(showingContent: Bool) -> JSONObject {
        var object: JSONObject = [
            "app": .string(app), "installation": .string(installationID),
            "asOf": .string(asOf.iso8601), "reason": .string(reason.rawValue),
            "sentence": Self.json(sentence), "nextStep": Self.json(nextStep),
            "notes": .array(notes.map(Self.json)),
            "steps": .array(steps.map { .object($0.json) }),
            "audience": .array(clauses.map { .object($0.json) }),
            "attempts": .array(attempts.map { .object($0.json) }),
            "causes": .array(causes.map { .object($0.json) }),
        ]
        object["pushId"] = pushID.map { .string($0) }
        object["audienceAt"] = audienceAt.map { .string($0.iso8601) }
        object["payload"] = payload.map { .object($0.json(showingContent: showingContent)) }
        return object
    }

    private static func json(_ phrase: Phrase) -> JSONValue {
        [
            "text": .string(phrase.text), "template": .string(phrase.template),
            "values": .object(phrase.json),
        ]
    }
}

extension Explanation.Step {
    fileprivate var json: JSONObject {
        [
            "step": .string(question.rawValue), "question": .string(question.title.text),
            "state": .string(state.rawValue), "summary": .string(summary.text),
            "facts": .array(facts.map { .object($0.json) }),
        ]
    }
}

extension Explanation.Fact {
    fileprivate var json: JSONObject {
        [
            "name": .string(label.text), "value": value?.json ?? .null,
            "of": .string(tense.rawValue),
        ]
    }
}

extension Explanation.Clause {
    fileprivate var json: JSONObject {
        var object: JSONObject = [
            "condition": .string(condition.text), "now": now.map(JSONValue.bool) ?? .null,
            "then": then.map(JSONValue.bool) ?? .null,
        ]
        object["value"] = value.map { .string($0) }
        return object
    }
}

extension Explanation.Attempt {
    fileprivate var json: JSONObject {
        var object: JSONObject = [
            "attempt": JSONValue(number), "provider": .string(provider.rawValue),
            "at": .string(at.iso8601),
        ]
        object["status"] = status.map { JSONValue($0) }
        object["reason"] = reason.map { .string($0) }
        object["messageId"] = messageID.map { .string($0) }
        return object
    }
}

extension Explanation.Payload {
    fileprivate func json(showingContent: Bool) -> JSONObject {
        var object: JSONObject = [
            "platform": .string(platform.rawValue), "bytes": JSONValue(bytes), "of": "now",
        ]
        object["locale"] = locale.map { .string($0) }
        object["problem"] = problem.map { .string($0) }
        if showingContent, problem == nil { object["content"] = .string(body) }
        return object
    }
}

extension Explanation.Cause {
    fileprivate var json: JSONObject {
        [
            "rank": .string(rank.rawValue), "cause": .string(cause.text),
            "why": .string(why.text),
        ]
    }
}
