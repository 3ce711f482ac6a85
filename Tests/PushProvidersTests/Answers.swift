import Observability
import PushCore

@testable import PushProviders

extension RenderedPayload {
    /// Renders the payload of a push that is the same for all devices.
    static func render(
        _ request: PushRequest,
        pushID: String,
        for platform: Platform,
        locale: String? = nil
    ) throws -> RenderedPayload {
        try PayloadTemplate.render(request, pushID: pushID, for: platform, locale: locale).payload()
    }
}

/// Collects results of a client from any thread.
final class Answers: @unchecked Sendable {
    private let lock = Lock()
    private var collected: [(Int, ProviderAnswer)] = []

    func add(_ index: Int, _ answer: ProviderAnswer) {
        lock.withLock { collected.append((index, answer)) }
    }

    /// The indices in the order of the answers.
    var indices: [Int] { lock.withLock { collected.map(\.0) } }

    func all(_ count: Int) -> [ProviderAnswer]? {
        lock.withLock {
            collected.count < count ? nil : collected.sorted { $0.0 < $1.0 }.map(\.1)
        }
    }
}
