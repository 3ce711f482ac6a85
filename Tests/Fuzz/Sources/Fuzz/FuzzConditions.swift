internal import JSON
internal import PushCore
internal import RegularExpressions

@testable internal import RemoteConfig

/// Fuzzes the input of publishers and app instances. It is parsed in time linear in its bytes; an
/// accepted condition is written as one that is parsed as the same, and has a result; a search for
/// an accepted pattern stays within its budget.
///
/// The first byte says what the rest is: an expression, a pattern (and after a line end the text),
/// a template, or a fetch.
func fuzzConditions(_ bytes: [UInt8]) {
    guard let kind = bytes.first else { return }
    let rest = Array(bytes.dropFirst())
    switch kind & 3 {
    case 0: fuzzExpression(String(decoding: rest, as: UTF8.self))
    case 1: fuzzPattern(rest)
    case 2:
        guard let json = try? JSONValue.parse(rest) else { return }
        fuzzTemplate(json)
    default: fuzzFetch(rest)
    }
}

private let digest: Digest = { message in
    // Any hash is good enough here.
    var state: UInt64 = 14_695_981_039_346_656_037
    for byte in message { state = (state ^ UInt64(byte)) &* 1_099_511_628_211 }
    return (0..<32).map { UInt8(truncatingIfNeeded: state >> (UInt64($0 % 8) * 8)) }
}

private let instance = """
    {app_instance_id:'a', app_id:'1:7:ios:ab', country_code:'DE', language_code:'de-DE', \
    app_version:'1.10', app_build:'7', first_open_time:'2026-01-01T00:00:00Z', \
    custom_signals:{"a":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, \
    analytics_user_properties:{"a":"31"}}
    """

/// The maximum duration of one search, with a slow machine and the sanitizers allowed for.
private let searchTime = Duration.milliseconds(500)

private func fuzzExpression(_ text: String) {
    var context = ExpressionContext()
    guard let expression = try? ConfigExpression(text, in: &context) else { return }
    let back = expression.description
    guard let again = try? ConfigExpression(back, in: &context) else {
        fatalError("\(text) is given back as \(back), which is not taken")
    }
    require(again.description == back, "\(text) is given back as \(back), then otherwise")
    guard let fetch = try? ConfigFetch(body: Array(instance.utf8)) else {
        fatalError("the instance is not read")
    }
    let time = processorTime {
        var circumstances = EvaluationContext(
            fetch,
            now: Instant(milliseconds: 1_770_000_000_000),
            digest: digest,
            matcher: RegularExpressionMatcher()
        )
        _ = circumstances.hold(expression)
    }
    require(time < searchTime * 4, "\(text) takes \(time)")
}

private func fuzzPattern(_ bytes: [UInt8]) {
    let parts = bytes.split(separator: UInt8(ascii: "\n"), maxSplits: 1)
    guard let first = parts.first,
        let pattern = try? RegularExpression(String(decoding: first, as: UTF8.self))
    else { return }
    let text = String(decoding: parts.last ?? [], as: UTF8.self)
    let matcher = RegularExpressionMatcher()
    var steps = RegularExpressionMatcher.stepsPerSearch
    let time = processorTime { _ = matcher.search(pattern, in: text, steps: &steps) }
    require(steps >= 0, "a search took more than its budget")
    require(time < searchTime, "\(pattern.pattern) takes \(time)")
}

private func fuzzTemplate(_ json: JSONValue) {
    for namespace in ConfigNamespace.allCases {
        guard let template = try? ConfigTemplate(json, namespace: namespace) else { continue }
        guard let again = try? ConfigTemplate(.object(template.object), namespace: namespace) else {
            fatalError("what is kept of a template is not taken")
        }
        require(again.object == template.object, "what is kept of a template is not its form")
        for format in DefaultsFormat.allCases { _ = format.render(template.defaults) }
        guard namespace == .firebase else { continue }
        let config = CompiledConfig(template, app: "a", version: 1, digest: digest)
        let now = Instant(milliseconds: 1_770_000_000_000)
        let answer = config.answer(to: ConfigFetch(), ifNoneMatch: nil, now: now)
        require((try? JSONValue.parse(answer.body)) != nil, "an answer is no JSON")
        let same = config.answer(to: ConfigFetch(), ifNoneMatch: Array(answer.etag.utf8), now: now)
        require(same.state == .noChange, "its own ETag is a change")
    }
}

private func fuzzFetch(_ bytes: [UInt8]) {
    within(bytes.count) { _ = try? ConfigFetch(body: bytes) }
    within(bytes.count) { _ = try? RelaxedJSON.parse(bytes) }
    // Both parsers must read JSON the same.
    if let strict = try? JSONValue.parse(bytes, maximumDepth: 16),
        case .object(let members) = strict,
        let relaxed = try? RelaxedJSON.parse(bytes)
    {
        require(relaxed.object?.count == members.count, "the two readings differ")
    }
}
