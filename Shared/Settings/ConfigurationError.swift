/// The error of one variable. The process ends with exit code 78 (`EX_CONFIG`).
package struct ConfigurationError: Error, Equatable, CustomStringConvertible {
    package let variable: String
    package let problem: String

    /// Makes an error; `problem` says what was expected, never the value of a secret.
    package init(_ variable: String, _ problem: String) {
        self.variable = variable
        self.problem = problem
    }

    package var description: String { "\(variable) \(problem)" }
}
