internal import JSON
package import PushCore
internal import RegularExpressions

/// One version of a client template, as app instances ask for it.
///
/// A fetch evaluates the conditions that some parameter uses, and looks up the answer by what they
/// came to: each such answer is rendered once, and its bytes are shared. What is kept is weighed;
/// beyond the bound, answers that were not asked for lately go. Confined to its loop; nothing to shut
/// down.
package final class CompiledConfig {
    package enum FetchState: String, Sendable {
        case update = "UPDATE"
        case noChange = "NO_CHANGE"
        case noTemplate = "NO_TEMPLATE"
        case emptyConfig = "EMPTY_CONFIG"
    }

    package struct Answer: Sendable, Equatable {
        package let state: FetchState
        /// JSON.
        package let body: [UInt8]
        /// Without quotes.
        package let etag: String
    }

    package let version: Int
    private let app: String
    private let digest: Digest
    private let conditions: [ConfigExpression]
    private let parameters: [Parameter]
    private let noChange: [UInt8]
    private let matcher = RegularExpressionMatcher()
    private var rendered: AnswerCache<RenderedAnswer>

    /// - Parameters:
    ///   - template: Of namespace `firebase`.
    ///   - app: The app's id, for ETags.
    ///   - version: Of the template; 1 or more.
    ///   - digest: SHA-256.
    ///   - cacheBytes: What the rendered answers may weigh.
    package init(
        _ template: ConfigTemplate,
        app: String,
        version: Int,
        digest: @escaping Digest,
        cacheBytes: Int = 4 << 20
    ) {
        self.app = app
        self.version = version
        self.digest = digest
        rendered = AnswerCache(limit: cacheBytes)
        noChange = Self.body(.noChange, version: version, entries: nil)
        // Of the conditions only those that some parameter uses, in their order.
        var used = TextSet()
        for parameter in template.parameters {
            used.formUnion(parameter.conditionalValues.lazy.map(\.condition))
        }
        var places: TextMap<Int> = [:]
        var conditions: [ConfigExpression] = []
        for (name, expression) in template.conditions where used.contains(name) {
            places[name] = conditions.count
            conditions.append(expression)
        }
        self.conditions = conditions
        parameters = template.parameters.map { Parameter($0, places) }
    }

    /// The answer where nothing is published.
    package static func noTemplate(app: String) -> Answer {
        Answer(
            state: .noTemplate,
            body: Array("{\"state\":\"NO_TEMPLATE\"}".utf8),
            etag: "etag-\(app)-firebase-fetch-0"
        )
    }

    /// The answer to one fetch.
    ///
    /// - Parameters:
    ///   - fetch: What the app instance says.
    ///   - ifNoneMatch: The header as it came, with or without quotes.
    ///   - now: The server's clock, which is `dateTime`.
    /// - Returns: What to send, with status 200 whatever its state.
    package func answer(
        to fetch: ConfigFetch,
        ifNoneMatch: [UInt8]?,
        now: Instant
    ) -> Answer {
        var circumstances = ConfigCircumstances(fetch, now: now, digest: digest, matcher: matcher)
        var truth = ConditionTruth(count: conditions.count)
        for index in conditions.indices where circumstances.hold(conditions[index]) {
            truth.set(index)
        }
        let answer: RenderedAnswer
        if let known = rendered[truth] {
            answer = known
        } else {
            answer = render(truth)
            rendered.insert(
                answer,
                for: truth,
                weight: answer.body.count + 256 + conditions.count / 8
            )
        }
        if let ifNoneMatch, Self.isSame(ifNoneMatch, answer.etagBytes) {
            return Answer(state: .noChange, body: noChange, etag: answer.etag)
        }
        return Answer(state: answer.state, body: answer.body, etag: answer.etag)
    }

    // MARK: Rendering

    private func render(_ truth: ConditionTruth) -> RenderedAnswer {
        var entries: [UInt8] = [UInt8(ascii: "{")]
        for parameter in parameters {
            guard let value = parameter.value(truth) else { continue }
            if entries.count > 1 { entries.append(UInt8(ascii: ",")) }
            writeJSONString(parameter.key, into: &entries)
            entries.append(UInt8(ascii: ":"))
            writeJSONString(value, into: &entries)
        }
        let isEmpty = entries.count == 1
        entries.append(UInt8(ascii: "}"))
        let hash = digest(entries).prefix(8).map { byte in
            String(byte >> 4, radix: 16) + String(byte & 15, radix: 16)
        }.joined()
        let state = isEmpty ? FetchState.emptyConfig : .update
        return RenderedAnswer(
            state: state,
            body: Self.body(state, version: version, entries: isEmpty ? nil : entries),
            etag: "etag-\(app)-firebase-fetch-\(version)-\(hash)"
        )
    }

    private static func body(_ state: FetchState, version: Int, entries: [UInt8]?) -> [UInt8] {
        var body: [UInt8] = []
        body.reserveCapacity((entries?.count ?? 0) + 80)
        body += "{".utf8
        if let entries {
            body += "\"entries\":".utf8
            body += entries
            body += ",".utf8
        }
        // A text: iOS drops a number.
        body += "\"state\":\"\(state.rawValue)\",\"templateVersion\":\"\(version)\"}".utf8
        return body
    }

    private static func isSame(_ header: [UInt8], _ etag: [UInt8]) -> Bool {
        if header.count == etag.count { return header == etag }
        let quote = UInt8(ascii: "\"")
        return header.count == etag.count + 2 && header.first == quote && header.last == quote
            && header.dropFirst().dropLast().elementsEqual(etag)
    }

    private struct Parameter {
        let key: String
        let defaultValue: ConfigParameter.Value?
        /// In the order of the conditions' priority.
        let conditionalValues: [(condition: Int, value: ConfigParameter.Value)]

        init(_ parameter: ConfigParameter, _ places: TextMap<Int>) {
            key = parameter.key
            defaultValue = parameter.defaultValue
            conditionalValues = parameter.conditionalValues.compactMap { name, value in
                places[name].map { ($0, value) }
            }.sorted { $0.condition < $1.condition }
        }

        /// `nil` where the app keeps its own.
        func value(_ truth: ConditionTruth) -> String? {
            let chosen = conditionalValues.first { truth.holds($0.condition) }?.value
            switch chosen ?? defaultValue {
            case .text(let text): return text
            case .inAppDefault, nil: return nil
            }
        }
    }
}

/// An answer with its entries, for all instances whose conditions came to the same.
private struct RenderedAnswer {
    let state: CompiledConfig.FetchState
    let body: [UInt8]
    let etag: String
    let etagBytes: [UInt8]

    init(state: CompiledConfig.FetchState, body: [UInt8], etag: String) {
        self.state = state
        self.body = body
        self.etag = etag
        etagBytes = Array(etag.utf8)
    }
}
