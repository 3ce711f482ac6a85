/// How the members of a group share the partitions of its topics. All members of a group use the
/// same assignment: librdkafka does not offer both at once, and a broker rejects a member that
/// offers another one than the group's.
package enum PartitionAssignment: Sendable {
    /// librdkafka's `cooperative-sticky`: only moving partitions are interrupted. It balances the
    /// total number of partitions of all topics: use it for one topic.
    case cooperative
    /// librdkafka's `roundrobin`, an eager protocol: the members give up all partitions at each
    /// change, and share them again, so that the shares of every topic differ by one partition at
    /// most.
    case even

    var strategy: String {
        switch self {
        case .cooperative: "cooperative-sticky"
        case .even: "roundrobin"
        }
    }
}
