import ConfigStorage
import Cryptography
import Gateway
import HTTPServer
import Storage

/// The caller that publishes templates, or reads them with the same right.
enum Publisher: Equatable, Sendable {
    case token(name: String, isReadOnly: Bool)
    case master

    var name: String {
        switch self {
        case .token(let name, _): name
        case .master: AuditTrail.masterKeyActor
        }
    }

    /// Returns the user of a version, with an email address, as clients require one.
    func user(of app: String) -> ConfigUser { ConfigUser(name: name, email: "\(name)@\(app)") }
}

extension FirebaseSurface {
    /// Authenticates a publisher by a config token or by the master key.
    ///
    /// - Throws: 401 for an unknown bearer token, and without credentials; 403 for all other credentials
    ///   without access: a token or a key of another app, and keys of clients.
    func publisher(
        _ request: HTTPServerRequest,
        _ context: RequestContext
    ) async throws -> (caller: Caller, publisher: Publisher) {
        let project = request.pathParameters["project"] ?? ""
        let authorization = request.headers.all("authorization")
        guard authorization.count < 2 else {
            _ = context.refusal()
            throw FirebaseError.unauthenticated
        }
        if let token = authorization.first.flatMap(Self.bearer) {
            return try await publisher(token, of: project, context)
        }
        do {
            if authorization.first != nil || Self.namesApp(request) {
                let proof = try Proof(project: project, headers: request.headers)
                let caller = try await context.admit(proof)
                guard caller.isMaster else { throw FirebaseError.permissionDenied }
                return (caller, .master)
            }
            guard let key = Self.clientKey(of: request) else {
                throw context.refusal()
            }
            // A client's key counts like any other credential, but is never sufficient.
            _ = try await context.admit(Proof(project: project, clientKey: key))
            throw FirebaseError.permissionDenied
        } catch Refusal.unauthorized
            where authorization.first?.lowercased().hasPrefix("basic ") != true
            && !Self.namesApp(request) && Self.clientKey(of: request) == nil
        {
            throw FirebaseError.unauthenticated
        }
    }

    private func publisher(
        _ token: String,
        of project: String,
        _ context: RequestContext
    ) async throws -> (caller: Caller, publisher: Publisher) {
        let digest = sha256(Array(token.utf8))
        do {
            let caller = try await context.admit(Proof(project: project, configToken: digest))
            guard case .configToken(let name, let isReadOnly) = caller.credential else {
                throw Refusal.unauthorized
            }
            return (caller, .token(name: name, isReadOnly: isReadOnly))
        } catch Refusal.unauthorized {
            // A token of another app gets 403, whether or not this project exists.
            throw try await database.configTokens.isKnown(digest)
                ? FirebaseError.permissionDenied : .unauthenticated
        }
    }

    /// Reads the credentials of a client: an app key, an API key that is linked to the app, or the
    /// credentials of Carillon's other surfaces.
    ///
    /// - Throws: 403, whatever is missing.
    func client(_ request: HTTPServerRequest, _ context: RequestContext) throws -> Proof {
        let project = request.pathParameters["project"] ?? ""
        if let key = Self.clientKey(of: request) {
            return Proof(project: project, clientKey: key)
        }
        guard Self.namesApp(request) || request.header("authorization") != nil else {
            throw context.refusal()
        }
        do throws(Refusal) {
            return try Proof(project: project, headers: request.headers)
        } catch {
            throw error == .unauthorized ? context.refusal() : error
        }
    }

    /// Returns the token after `Bearer `.
    private static func bearer(_ header: String) -> String? {
        let parts = header.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "bearer" else { return nil }
        return String(parts[1])
    }

    private static func namesApp(_ request: HTTPServerRequest) -> Bool {
        request.header("x-lc-id") != nil || request.header("x-avoscloud-application-id") != nil
    }

    /// Returns the client's key. An empty parameter or header is ignored, so that it does not hide
    /// the other.
    static func clientKey(of request: HTTPServerRequest) -> String? {
        let keys = request.query.lazy.filter { $0.name == "key" }.map(\.value)
        return keys.first { !$0.isEmpty }
            ?? request.header("x-goog-api-key").flatMap { $0.isEmpty ? nil : $0 }
    }
}
