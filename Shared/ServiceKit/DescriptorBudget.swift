/// Divides the process's descriptors between its listeners and everything else that it opens:
/// Postgres, Kafka, providers, files. Without it anyone could use them up by opening connections.
package struct DescriptorBudget: Sendable, Equatable {
    package enum Listener: Sendable {
        /// A port for the operators alone. Its connections come out of the reserve, so it also
        /// answers while the service's own ports are full.
        case operations
        /// It gets one `share`-th of what the reserve leaves.
        case service(share: Int = 1)
    }

    /// The system's usual limit, where it does not say.
    static let assumedTotal = 1024

    /// How many descriptors the process can open.
    package let total: Int

    package init(total: Int) { self.total = max(0, total) }

    /// For what the process opens itself: a quarter, at most 4096. Of less than 512 it is 128, as far
    /// as that is no more than half.
    package var reserve: Int { min(4096, max(total / 4, min(128, total / 2))) }

    /// A quarter of the reserve, so that scrapes and probes cannot use it up.
    package var operations: Int { max(1, reserve / 4) }

    /// - Returns: How many connections the listener may hold, at least 1.
    package func connections(for listener: Listener, wanted: Int) -> Int {
        switch listener {
        case .operations: min(wanted, operations)
        case .service(let share): max(1, min(wanted, (total - reserve) / max(1, share)))
        }
    }
}
