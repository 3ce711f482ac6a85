import HTTPServer

/// The console's cookies. `__Host-` binds them to this host, all its paths and TLS; browsers take
/// them from `localhost` without TLS, too.
enum ConsoleCookie: String {
    case session = "__Host-carillon"
    /// A sign-in at an issuer that is not finished.
    case signIn = "__Host-carillon-sign-in"
    /// Theme and language, as `dark.pt-BR`.
    case look = "__Host-carillon-look"
    /// The message for the next page, by its name.
    case flash = "__Host-carillon-flash"

    /// Returns the cookie's value in a request.
    func value(in request: HTTPServerRequest) -> String? {
        for line in request.headers.all("cookie") {
            for pair in line.split(separator: ";") {
                let text = pair.drop { $0 == " " }
                if text.hasPrefix(rawValue + "=") {
                    return String(text.dropFirst(rawValue.count + 1))
                }
            }
        }
        return nil
    }

    /// Returns a `Set-Cookie` line. The value has only letters, digits and `-._`. After `seconds` the
    /// browser deletes it, at once if they are 0, and when it closes if they are nil.
    func line(_ value: String, seconds: Int? = nil) -> String {
        // Lax: the redirect from an issuer's page carries the cookie, forms of other sites do not.
        let age = seconds.map { "; Max-Age=\($0)" } ?? ""
        return "\(rawValue)=\(value); Path=/; Secure; HttpOnly; SameSite=Lax\(age)"
    }
}

/// How the console looks for one person: a cookie, without an account.
struct Look: Sendable, Equatable {
    enum Theme: String, Sendable { case light, dark, system }

    var theme: Theme
    var language: Language?

    init(theme: Theme = .system, language: Language? = nil) {
        self.theme = theme
        self.language = language
    }

    init(_ request: HTTPServerRequest) {
        let parts = (ConsoleCookie.look.value(in: request) ?? "").split(
            separator: ".",
            omittingEmptySubsequences: false
        )
        theme = parts.first.flatMap { Theme(rawValue: String($0)) } ?? .system
        language = parts.count == 2 ? Language(rawValue: String(parts[1])) : nil
    }

    var cookie: String {
        ConsoleCookie.look.line(
            "\(theme.rawValue).\(language?.rawValue ?? "")",
            seconds: 365 * 86_400
        )
    }

    /// The language of a page: the chosen one, else the browser's.
    func language(for request: HTTPServerRequest) -> Language {
        language ?? Language(accepting: request.header("accept-language"))
    }
}
