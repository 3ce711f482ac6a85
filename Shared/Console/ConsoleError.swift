/// Why a page is not shown. Each is a page of its own.
enum ConsoleError: Error, Equatable, Sendable {
    /// There is no session, or it has ended: the sign-in page comes, then the page.
    case signedOut
    /// The session is of another app.
    case otherApp(signedInTo: String)
    case missingRole(Role)
    /// A form without its session's token, or from another site.
    case foreignForm
    /// There is no such thing; a sentence.
    case missing(String)
    /// It changed meanwhile; a sentence.
    case conflict(String)
    /// Kafka, which the page needs, is away; a sentence.
    case away(String)
    /// The form cannot be read.
    case badForm
    /// A sign-in at an issuer failed.
    case signInFailed(SignInFault)
}
