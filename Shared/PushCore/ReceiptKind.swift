/// The kind of a device's report about a push. Raw values are those of the table.
package enum ReceiptKind: Int, Sendable {
    case opened = 1
    case received = 2
}
