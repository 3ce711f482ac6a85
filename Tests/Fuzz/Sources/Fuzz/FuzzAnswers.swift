internal import HTTPTransport
internal import JSON
internal import PushCore

@testable internal import PushProviders

/// Fuzzes answers of a provider or of its token endpoint. Each is one outcome with texts and
/// numbers within their bounds, with which all later arithmetic is safe, and is parsed in time
/// linear in its bytes.
///
/// The first line is a letter for the sender (A, F, W, M, O) and the status; then come headers, a
/// line each, an empty line, and the body.
func fuzzAnswers(_ bytes: [UInt8]) {
    guard let (who, response) = readAnswer(bytes) else { return }
    for now in [Instant(milliseconds: 1_700_000_000_000), .earliest, .latest] {
        within(bytes.count) {
            switch who {
            case UInt8(ascii: "A"):
                for isExplicit in [false, true] {
                    let answer = APNsAnswer.classify(
                        response,
                        environmentIsExplicit: isExplicit,
                        topicIsExplicit: isExplicit,
                        at: now
                    )
                    judge(answer.answer, now)
                }
            case UInt8(ascii: "F"): judge(FCMAnswer.classify(response, at: now).answer, now)
            case UInt8(ascii: "W"): judge(WNSAnswer.classify(response, at: now).answer, now)
            case UInt8(ascii: "M"): judge(MPNSAnswer.classify(response, at: now), now)
            case UInt8(ascii: "O"): judge(AccessTokenGrant.read(response, at: now), now)
            default: break
            }
        }
    }
}

private func readAnswer(_ bytes: [UInt8]) -> (who: UInt8, HTTPResponse)? {
    guard let who = bytes.first else { return nil }
    var rest = bytes.dropFirst()
    func line() -> ArraySlice<UInt8> {
        let line = rest.prefix { $0 != UInt8(ascii: "\n") }
        rest = rest.dropFirst(line.count + 1)
        return line
    }
    guard let status = Int(String(decoding: line(), as: UTF8.self)), (100...999) ~= status else {
        return nil
    }
    var headers: [HTTPField] = []
    while !rest.isEmpty {
        let field = line()
        if field.isEmpty { break }
        let name = field.prefix { $0 != UInt8(ascii: ":") }
        headers.append(
            HTTPField(
                String(decoding: name, as: UTF8.self).lowercased(),
                String(decoding: field.dropFirst(name.count + 1), as: UTF8.self)
            )
        )
    }
    return (who, HTTPResponse(status: status, headers: headers, body: Array(rest)))
}

private let day: Int64 = 86_400_000

private func judge(_ answer: ProviderAnswer, _ now: Instant) {
    require(answer.reason?.utf8.count ?? 0 <= 200, "a reason of any length")
    require(answer.providerMessageID?.utf8.count ?? 0 <= 300, "an id of any length")
    judge(answer.outcome, now)
    // The dispatcher's decision follows.
    for (overwrites, jitter) in [(false, 0.0), (true, 0.999)] {
        var attempts = DeliveryAttempts(attempts: 3, unanswered: 0)
        let decision = attempts.finished(
            answer.outcome,
            repeatOverwrites: overwrites,
            now: now,
            expiresAt: nil,
            jitter: jitter
        )
        switch decision {
        case .settle: break
        case .settleAndDisableToken(let since):
            require(since ?? now <= now, "dead in a time to come")
        case .retry(let time):
            require(time >= now, "again in the past")
            require(time <= now.adding(milliseconds: day * 2), "again after more than a day")
        }
    }
}

private func judge(_ outcome: ProviderOutcome, _ now: Instant) {
    switch outcome {
    case .unregistered(let since):
        require(since ?? 1 > 0 && since ?? 0 <= max(now.milliseconds, 1), "dead at no such time")
    case .unavailable(let wait), .throttled(let wait):
        let milliseconds = wait?.wholeMilliseconds ?? 0
        require((0...day) ~= milliseconds, "a wait of \(milliseconds) ms")
    case .accepted, .mismatched, .rejected, .misconfigured, .noAnswer, .notSent: break
    }
}

private func judge(_ answer: MPNSAnswer, _ now: Instant) {
    judge(answer.answer, now)
    guard let wait = answer.holdsChannel else { return }
    require((0...day) ~= wait.wholeMilliseconds, "a channel is left alone for too long")
    var channels = MPNSChannelThrottle()
    channels.hold("c", for: wait, now: now)
    let left = channels.admit("c", isAuthenticated: true, now: now)?.wholeMilliseconds ?? 0
    require((0...day) ~= left, "a channel is left alone for too long")
}

private func judge(_ grant: Result<AccessTokenGrant, TokenRefusal>, _ now: Instant) {
    var rule = AccessTokenPolicy()
    _ = rule.decision(at: now.milliseconds)
    switch grant {
    case .success(let grant):
        require((1...16_384) ~= grant.token.utf8.count, "a token of any length")
        require(
            grant.token.utf8.allSatisfy { (0x20..<0x7F) ~= $0 },
            "a token that is no header's value"
        )
        rule.fetched(grant.token, lifetimeSeconds: grant.lifetimeSeconds, at: now.milliseconds)
        require(rule.decision(at: now.milliseconds) == .use(grant.token), "a new token is not used")
        let later = now.milliseconds + 31 * day
        require(rule.decision(at: later) == .waitAndFetch, "a token that never ends")
    case .failure(let refusal):
        judge(refusal.answer, now)
        require(refusal.reason.utf8.count <= 200, "a reason of any length")
        rule.failed(refusal, at: now.milliseconds)
        require(
            rule.decision(at: now.milliseconds + day + 1) == .waitAndFetch,
            "not asked again after a day"
        )
    }
}
