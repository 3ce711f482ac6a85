import Observability
import PushCore

@testable import PushProviders

extension RenderedPayload {
    /// What all devices get of a push that differs in nothing for them.
    static func render(
        _ request: PushRequest,
        pushID: String,
        for platform: Platform,
        locale: String? = nil
    ) throws -> RenderedPayload {
        try PayloadTemplate.render(request, pushID: pushID, for: platform, locale: locale).payload()
    }
}

/// Collects what a client completes, from whatever thread.
final class Answers: @unchecked Sendable {
    private let lock = Lock()
    private var collected: [(Int, ProviderAnswer)] = []

    func add(_ index: Int, _ answer: ProviderAnswer) {
        lock.withLock { collected.append((index, answer)) }
    }

    /// In the order in which they came.
    var indices: [Int] { lock.withLock { collected.map(\.0) } }

    func all(_ count: Int) -> [ProviderAnswer]? {
        lock.withLock {
            collected.count < count ? nil : collected.sorted { $0.0 < $1.0 }.map(\.1)
        }
    }
}
