/// The rights of a caller.
package enum CallerRights: Equatable, Sendable {
    case client
    case master
}
