import Gateway
import HTTPServer
import PushCore

/// One request of a person who is signed in: the app, the role, the words, and the form if one was
/// posted.
struct Visit: Sendable {
    let request: HTTPServerRequest
    let caller: Caller
    let session: Session
    let t: Words
    let look: Look
    let form: Form

    var app: String { session.app }
    var role: Role { session.role }

    /// Returns a value of the route's pattern.
    func parameter(_ name: String) -> String { request.pathParameters[name] ?? "" }

    /// Returns an address of the app's pages.
    func address(_ segments: String..., query: KeyValuePairs<String, String?> = [:])
        -> Address
    {
        Address([app] + segments, query: query.map { ($0.key, $0.value) })
    }

    /// The hidden field of every form that changes something.
    var formToken: HTML {
        "<input type=\"hidden\" name=\"\(Form.tokenName)\" value=\"\(session.formToken)\">"
    }

    /// Returns the value of the query, without blanks around it; nil if it is empty.
    func query(_ name: String) -> String? {
        let value = (request.queryValue(name) ?? "").trimmed
        return value.isEmpty ? nil : value
    }

    /// Records what an act concerned, for the audit.
    func note(_ target: String) { caller.context?.note(target) }
}

/// The fields of a posted form.
struct Form: Sendable {
    static let tokenName = "token"
    /// The largest form has a push with its languages.
    static let maximumBytes = 256 << 10

    /// The largest form has ten conditions and ten languages.
    static let maximumFields = 500

    private let fields: [String: String]

    /// Makes a form; of several fields with one name the first one counts.
    ///
    /// - Throws: `ConsoleError.badForm` if there are too many.
    init(_ fields: [(name: String, value: String)]) throws(ConsoleError) {
        guard fields.count <= Self.maximumFields else { throw .badForm }
        self.fields = Dictionary(fields.map { ($0.name, $0.value) }) { first, _ in first }
    }

    init() { fields = [:] }

    subscript(name: String) -> String? { fields[name] }

    /// Returns a field without blanks around it; empty if it is missing.
    func text(_ name: String) -> String { (self[name] ?? "").trimmed }

    var names: [String] { Array(fields.keys) }
}

extension String {
    /// The text without blanks and line ends around it.
    var trimmed: String {
        var text = self[...].drop(while: \.isWhitespace)
        while text.last?.isWhitespace == true { text.removeLast() }
        return String(text)
    }
}
