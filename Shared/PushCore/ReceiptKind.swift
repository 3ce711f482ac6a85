/// A device's report about a push, as it is stored.
package enum ReceiptKind: Int, Sendable {
    case opened = 1
    case received = 2
}
