/// What is wrong with one variable. The process ends with exit code 78 (`EX_CONFIG`).
package struct ConfigurationError: Error, Equatable, CustomStringConvertible {
    package let variable: String
    package let problem: String

    /// `problem` says what was expected; it never holds the value of a secret.
    package init(_ variable: String, _ problem: String) {
        self.variable = variable
        self.problem = problem
    }

    package var description: String { "\(variable) \(problem)" }
}
