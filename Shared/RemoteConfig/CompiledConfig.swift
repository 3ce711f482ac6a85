internal import JSON
package import PushCore
internal import RegularExpressions

/// One version of a client template, compiled for the fetches of app instances.
///
/// A fetch evaluates the conditions that some parameter uses, and looks up the answer by their
/// results: each such answer is rendered once, and its bytes are shared. The cache is limited by
/// weight; beyond it, answers that were not used lately are evicted. Confined to its loop; nothing to
/// shut down.
package final class CompiledConfig {
    package enum FetchState: String, Sendable {
        case update = "UPDATE"
        case noChange = "NO_CHANGE"
        case noTemplate = "NO_TEMPLATE"
        case emptyConfig = "EMPTY_CONFIG"
    }

    package struct Answer: Sendable, Equatable {
        package let state: FetchState
        /// The body, in JSON.
        package let body: [UInt8]
        /// The ETag, without quotes.
        package let etag: String
    }

    package let version: Int
    private let app: String
    private let digest: Digest
    private let conditions: [(name: String, expression: ConfigExpression)]
    private let parameters: [Parameter]
    private let noChange: [UInt8]
    private let matcher = RegularExpressionMatcher()
    private var rendered: AnswerCache<RenderedAnswer>

    /// - Parameters:
    ///   - template: A template of namespace `firebase`.
    ///   - app: The app's id, for ETags.
    ///   - version: The template's version; 1 or more.
    ///   - digest: SHA-256.
    ///   - cacheBytes: The limit of rendered answers in memory.
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
        // The conditions that some parameter uses, in their order.
        var used = ExactStringSet()
        for parameter in template.parameters {
            used.formUnion(parameter.conditionalValues.lazy.map(\.condition))
        }
        var places: ExactStringMap<Int> = [:]
        var conditions: [(name: String, expression: ConfigExpression)] = []
        for (name, expression) in template.conditions where used.contains(name) {
            places[name] = conditions.count
            conditions.append((name, expression))
        }
        self.conditions = conditions
        parameters = template.parameters.map { Parameter($0, places) }
    }

    /// Returns the answer if nothing is published.
    package static func noTemplate(app: String) -> Answer {
        Answer(
            state: .noTemplate,
            body: Array("{\"state\":\"NO_TEMPLATE\"}".utf8),
            etag: "etag-\(app)-firebase-fetch-0"
        )
    }

    /// The work for one fetch before other tasks get their turn: 0.2 ms. Ordinary templates need less.
    package static let stepsAtOnce = 20_000
    /// The work in one turn: 1 ms. The last condition may take 1 ms more.
    package static let stepsPerSlice = 100_000

    /// Starts the evaluation of the conditions for one fetch.
    ///
    /// - Parameters:
    ///   - fetch: The app instance's request.
    ///   - now: The server's clock, the value of `dateTime` in conditions.
    /// - Returns: An evaluation for `advance`.
    package func evaluation(of fetch: ConfigFetch, now: Instant) -> ConfigEvaluation {
        ConfigEvaluation(
            EvaluationContext(fetch, now: now, digest: digest, matcher: matcher),
            ConditionResults(count: conditions.count)
        )
    }

    /// Evaluates conditions until all are evaluated, or this many steps are taken.
    ///
    /// - Returns: Whether all are evaluated.
    package func advance(_ evaluation: inout ConfigEvaluation, steps: Int) -> Bool {
        let end = evaluation.circumstances.work + steps
        while evaluation.next < conditions.count {
            guard evaluation.circumstances.work < end else { return false }
            let condition = conditions[evaluation.next]
            let holds = evaluation.circumstances.hold(condition.expression)
            if holds { evaluation.truth.set(evaluation.next) }
            if evaluation.circumstances.isStopped { evaluation.stopped(condition.name) }
            evaluation.next += 1
        }
        return true
    }

    /// Returns the answer to one fetch, without interruption.
    package func answer(
        to fetch: ConfigFetch,
        ifNoneMatch: [UInt8]?,
        now: Instant
    ) -> Answer {
        var evaluation = evaluation(of: fetch, now: now)
        _ = advance(&evaluation, steps: .max / 2)
        return answer(to: evaluation, ifNoneMatch: ifNoneMatch)
    }

    /// Returns the answer to a fetch whose conditions are evaluated.
    ///
    /// - Parameters:
    ///   - evaluation: The evaluation of all conditions.
    ///   - ifNoneMatch: The unchanged header, with or without quotes.
    /// - Returns: The body to send, with status 200 for every state.
    package func answer(to evaluation: ConfigEvaluation, ifNoneMatch: [UInt8]?) -> Answer {
        let truth = evaluation.truth
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

    private func render(_ truth: ConditionResults) -> RenderedAnswer {
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
        // The version is a string, as iOS ignores a number.
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
        /// The values in the order of the conditions' priority.
        let conditionalValues: [(condition: Int, value: ConfigParameter.Value)]

        init(_ parameter: ConfigParameter, _ places: ExactStringMap<Int>) {
            key = parameter.key
            defaultValue = parameter.defaultValue
            conditionalValues = parameter.conditionalValues.compactMap { name, value in
                places[name].map { ($0, value) }
            }.sorted { $0.condition < $1.condition }
        }

        /// Returns the value; `nil` if the app uses its own.
        func value(_ truth: ConditionResults) -> String? {
            let chosen = conditionalValues.first { truth.holds($0.condition) }?.value
            switch chosen ?? defaultValue {
            case .text(let text): return text
            case .inAppDefault, nil: return nil
            }
        }
    }
}

/// The evaluation of one version's conditions for one fetch, with its progress. Confined to the loop
/// of its `CompiledConfig`.
package struct ConfigEvaluation: @unchecked Sendable {
    fileprivate var circumstances: EvaluationContext
    fileprivate var truth: ConditionResults
    fileprivate var next = 0
    /// The first condition that took too long; it counts as false.
    package private(set) var stoppedCondition: String?
    package private(set) var stoppedCount = 0

    fileprivate init(_ circumstances: EvaluationContext, _ truth: ConditionResults) {
        self.circumstances = circumstances
        self.truth = truth
    }

    fileprivate mutating func stopped(_ name: String) {
        stoppedCondition = stoppedCondition ?? name
        stoppedCount += 1
    }
}

/// An answer with its entries, for all instances with the same results of conditions.
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
