/// What a caller may do.
package enum CallerRights: Equatable, Sendable {
    case client
    case master
}
