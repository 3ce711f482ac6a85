/// The reason why a request is refused: a code of LeanCloud and Parse, an HTTP status that agrees with it,
/// and a message that may be shown. Each surface renders it in its own form. The code is never 0.
package struct ObjectError: Error, Equatable, CustomStringConvertible {
    package let status: Int
    package let code: Int
    package let description: String

    package init(status: Int = 400, code: Int, _ description: String) {
        self.status = status
        self.code = code
        self.description = description
    }
}
