internal import Glibc
internal import JSON
internal import PushCore
internal import RegularExpressions

/// The state of evaluating conditions for one fetch. Values that several of them need are computed once.
struct EvaluationContext {
    /// The budget of all patterns and substring searches of one fetch: 10 ms. When it is used up,
    /// every condition with a pattern or such a search is false.
    static let stepsPerFetch = 1_000_000
    /// The budget of one condition: 1 ms. When it is used up, the condition is false.
    static let stepsPerCondition = 100_000
    /// The cost of a hash in `work`.
    private static let stepsPerHash = 50

    private let fetch: ConfigFetch
    private let now: Instant
    private let digest: Digest
    private let matcher: RegularExpressionMatcher
    private var fetchSteps = EvaluationContext.stepsPerFetch
    /// The rest of the condition's budget.
    private var steps = 0
    /// Whether the last condition has used up its budget, and so is false.
    private(set) var isStopped = false
    /// The work done so far, in steps: of all elements, with or without a budget.
    private(set) var work = 0
    private var appVersion: VersionNumbers??
    private var appBuild: VersionNumbers??
    private var operatingSystem: String??
    /// The percentiles of the first seeds, which are found by comparison. Those of further seeds are
    /// in `morePercentiles`.
    private var percentiles: [(seed: String?, value: Int)] = []
    private var morePercentiles = ExactStringMap<Int>()
    private static let comparedPercentiles = 8

    init(
        _ fetch: ConfigFetch,
        now: Instant,
        digest: @escaping Digest,
        matcher: RegularExpressionMatcher
    ) {
        self.fetch = fetch
        self.now = now
        self.digest = digest
        self.matcher = matcher
    }

    mutating func hold(_ expression: ConfigExpression) -> Bool {
        let allowed = min(fetchSteps, Self.stepsPerCondition)
        steps = allowed
        isStopped = false
        defer {
            let spent = allowed - max(steps, 0)
            fetchSteps -= spent
            work += spent
        }
        for element in expression.elements {
            work += 5
            guard holds(element), !isStopped else { return false }
        }
        return true
    }

    /// Whether an element holds. Without a value from the client it is false, even if it is a negation.
    private mutating func holds(_ element: ConfigExpression.Element) -> Bool {
        switch element {
        case .constant(let value): return value
        case .version(let source, let comparison, let wanted, _):
            guard let version = version(source) else { return false }
            return comparison.holds(version, wanted)
        case .text(let field, let method):
            guard let text = text(field) else { return false }
            return holds(method, text)
        case .number(let property, let comparison, let wanted):
            guard let number = number(property) else { return false }
            return comparison.holds(number, wanted.value)
        case .appID(let id): return fetch.appID?.isSame(as: id) ?? false
        case .firstOpen(let comparison, let time):
            guard let opened = fetch.firstOpenTime else { return false }
            return comparison.holds(opened, time.instant)
        case .dateTime(let comparison, let time): return comparison.holds(now, time.instant)
        case .installation(let ids):
            work += ids.count
            guard let id = fetch.appInstanceID else { return false }
            return ids.holds(id)
        case .country(let codes):
            work += codes.count
            guard let country = fetch.countryCode else { return false }
            return codes.contains { $0.utf8.count == country.utf8.count && country.begins($0) }
        case .language(let tags):
            work += tags.count
            return speaks(tags)
        case .operatingSystem(let name, let isWanted):
            guard let system = system() else { return false }
            return system.isSame(as: name) == isWanted
        case .percent(let seed, let rule):
            guard let percentile = percentile(seed) else { return false }
            return rule.holds(percentile)
        }
    }

    // MARK: Versions, strings and numbers

    private mutating func version(_ source: ConfigExpression.VersionSource) -> VersionNumbers? {
        switch source {
        case .signal(let key):
            guard let text = text(.property(.signal(key))) else { return nil }
            work += 1 + text.utf8.count / 8
            return VersionNumbers(text)
        case .version:
            if let appVersion { return appVersion }
            let version = fetch.appVersion.flatMap { VersionNumbers($0) }
            appVersion = .some(version)
            return version
        case .build:
            if let appBuild { return appBuild }
            let build = fetch.appBuild.flatMap { VersionNumbers($0) }
            appBuild = .some(build)
            return build
        }
    }

    private mutating func system() -> String? {
        if let operatingSystem { return operatingSystem }
        let system = fetch.operatingSystem
        operatingSystem = .some(system)
        return system
    }

    private func value(_ property: ConfigExpression.Property) -> JSONValue? {
        switch property {
        case .user(let key): fetch.userProperties[key]
        case .signal(let key): fetch.customSignals[key]
        }
    }

    private func text(_ field: ConfigExpression.TextField) -> String? {
        switch field {
        case .version(.version): fetch.appVersion
        case .version(.build): fetch.appBuild
        // An empty string is a value here: the app set it.
        case .property(let property):
            value(property).flatMap { $0.string ?? ConfigFetch.text($0) }
        }
    }

    private func number(_ property: ConfigExpression.Property) -> Double? {
        guard let value = value(property) else { return nil }
        guard let text = value.string else { return value.double }
        return ConfigNumber(text)?.value
    }

    private mutating func holds(_ method: ConfigExpression.TextMethod, _ text: String) -> Bool {
        switch method {
        case .contains(let parts): return hasPart(of: parts, text) == true
        case .notContains(let parts): return hasPart(of: parts, text) == false
        case .exactlyMatches(let texts):
            work += texts.count
            for wanted in texts where wanted.isSame(as: text) { return true }
            return false
        case .matches(let patterns):
            var isOverdue = false
            for pattern in patterns {
                switch matcher.search(pattern, in: text, steps: &steps) {
                case .found: return true
                case .notFound: continue
                case .tookTooLong:
                    // A pattern that takes too long does not match; another may match.
                    isOverdue = true
                }
            }
            isStopped = isOverdue
            return false
        }
    }

    /// Whether the text contains one of the parts; `nil` if the search takes too long, which makes the
    /// element false, even if it is a negation.
    private mutating func hasPart(of parts: [String], _ text: String) -> Bool? {
        let cost = 1 + text.utf8.count / 16
        for part in parts {
            steps -= cost
            guard steps > 0 else {
                isStopped = true
                return nil
            }
            if text.hasPart(part) { return true }
        }
        return false
    }

    /// Whether the client's language matches a tag: `en` in a condition also matches `en-US`.
    private func speaks(_ tags: [String]) -> Bool {
        guard let spoken = fetch.languageCode else { return false }
        return tags.contains { tag in
            let rest = spoken.utf8.dropFirst(tag.utf8.count).first
            return spoken.begins(tag) && (rest == nil || rest == UInt8(ascii: "-"))
        }
    }

    // MARK: Percentages

    /// Returns this instance's position in a hundred million, as the Admin SDKs compute it.
    private mutating func percentile(_ seed: String?) -> Int? {
        guard let id = fetch.appInstanceID else { return nil }
        for known in percentiles where known.seed.isSame(as: seed) { return known.value }
        if let seed, let known = morePercentiles[seed] { return known }
        work += Self.stepsPerHash
        var message: [UInt8] = []
        message.reserveCapacity(id.utf8.count + 1 + (seed?.utf8.count ?? 0))
        if let seed {
            message += seed.utf8
            message.append(UInt8(ascii: "."))
        }
        message += id.utf8
        let value = Self.remainder(digest(message))
        if let seed, percentiles.count >= Self.comparedPercentiles {
            morePercentiles[seed] = value
        } else {
            percentiles.append((seed, value))
        }
        return value
    }

    /// Returns the remainder of a hash, read as one large number.
    static func remainder(_ hash: [UInt8]) -> Int {
        hash.reduce(0) { ($0 * 256 + Int($1)) % ConfigExpression.PercentRule.whole }
    }
}

extension ConfigFetch {
    /// The third part of the app id: `1:<number>:android:<hex>`.
    var operatingSystem: String? {
        guard var appID else { return nil }
        return appID.withUTF8 { bytes in
            var colons: (Int, Int, Int) = (0, 0, 0)
            var count = 0
            for place in bytes.indices where unsafe bytes[place] == UInt8(ascii: ":") {
                colons = (colons.1, colons.2, place)
                count += 1
            }
            guard count == 3, colons.1 + 1 < colons.2 else { return nil }
            let third = unsafe bytes[(colons.1 + 1)..<colons.2]
            return unsafe String(decoding: third, as: UTF8.self)
        }
    }
}

extension String {
    /// Whether it begins with the prefix, ignoring the case of ASCII letters. Tags and codes have
    /// no other letters.
    func begins(_ prefix: String) -> Bool {
        var bytes = utf8.makeIterator()
        for wanted in prefix.utf8 {
            guard let byte = bytes.next() else { return false }
            if byte == wanted { continue }
            guard byte ^ wanted == 0x20, (97...122).contains(byte | 0x20) else { return false }
        }
        return true
    }

    /// Whether it contains the bytes of the part. Both are short: a client's value has at most
    /// `ConfigFetch.maximumSignalLength` characters.
    func hasPart(_ part: String) -> Bool {
        guard !part.isEmpty else { return true }
        var text = self
        var part = part
        return text.withUTF8 { text in
            part.withUTF8 { part in
                guard let start = text.baseAddress, let wanted = part.baseAddress,
                    part.count <= text.count
                else { return false }
                return (0...text.count - part.count).contains { place in
                    unsafe start[place] == wanted[0]
                        && memcmp(start + place, wanted, part.count) == 0
                }
            }
        }
    }
}
