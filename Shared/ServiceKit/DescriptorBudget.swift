/// Divides the process's descriptors between its listeners and all its other uses: Postgres, Kafka,
/// providers, files. Without it clients could exhaust them by opening connections.
package struct DescriptorBudget: Sendable, Equatable {
    package enum Listener: Sendable {
        /// A port for the operators alone. Its connections come out of the reserve, so it also
        /// answers while the service's own ports are full.
        case operations
        /// It gets one `share`-th of the rest after the reserve.
        case service(share: Int = 1)
    }

    /// The usual limit of a system that does not report one.
    static let assumedTotal = 1024

    /// The number of descriptors that the process can open.
    package let total: Int

    package init(total: Int) { self.total = max(0, total) }

    /// The descriptors for the process's own use: a quarter, at most 4096. Below 512 it is 128, or
    /// half if that is less.
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
