import Support
import Testing

/// Lets a few suites run at once, and a suite that measures times or memory alone.
///
/// A suite waits for processes and time limits more than it computes, so two cores serve several.
/// The order is that of arrival, but a suite that must be alone runs after the others.
struct Place: SuiteTrait, TestTrait, TestScoping {
    private static let places = Places(4)

    var isRecursive: Bool { true }

    /// The suites within the outermost one: their tests run in their place.
    func scopeProvider(for test: Test, testCase: Test.Case?) -> Self? {
        test.isSuite && test.name != "\(EndToEndTests.self)" ? self : nil
    }

    func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing body: @concurrent @Sendable () async throws -> Void
    ) async throws {
        let isAlone = test.traits.contains { $0 is Alone }
        await Self.places.take(alone: isAlone)
        do {
            try await body()
        } catch {
            await Self.places.free(alone: isAlone)
            throw error
        }
        await Self.places.free(alone: isAlone)
    }
}

/// Marks a suite that measures: it runs while no other does.
struct Alone: SuiteTrait {}

extension Trait where Self == Place {
    static var place: Self { Self() }
}

extension Trait where Self == Alone {
    static var alone: Self { Self() }
}

/// Counts the free places, and queues the suites that wait for one.
private actor Places {
    private let count: Int
    private var free: Int
    private var waiting: [CheckedContinuation<Void, Never>] = []
    private var waitingAlone: [CheckedContinuation<Void, Never>] = []

    init(_ count: Int) {
        self.count = count
        free = count
    }

    func take(alone: Bool) async {
        await withCheckedContinuation {
            if alone { waitingAlone.append($0) } else { waiting.append($0) }
            admit()
        }
    }

    func free(alone: Bool) {
        free += alone ? count : 1
        admit()
    }

    private func admit() {
        while free > 0, !waiting.isEmpty {
            free -= 1
            waiting.removeFirst().resume()
        }
        if free == count, waiting.isEmpty, !waitingAlone.isEmpty {
            free = 0
            waitingAlone.removeFirst().resume()
        }
    }
}
