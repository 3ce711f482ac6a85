import Apps
import PushCore

/// The app that a caller names, without any proof yet.
package struct UnverifiedApp: Sendable {
    fileprivate let access: CachedApp

    package var id: String { access.id }
}

/// Authentication by something other than an app key: the surface verifies, the gateway counts and
/// audits.
///
/// Call `countArrival` first; then find the app (`app`, `defaultApp`), after which the audit has the
/// attempt however it ends; then `countAuthenticated`, or `refusal`.
extension RequestContext {
    /// Counts the request by its address, once, before anything of it is read. `admit` does so
    /// itself.
    ///
    /// - Throws: `Refusal.tooManyRequests`.
    package func countArrival() throws {
        do { try limits.countArrival(from: from) } catch { throw notingRetryAfter(error) }
    }

    /// Whether this address had too many failures; then only proofs that cannot be guessed are
    /// accepted.
    package var isAfterFailures: Bool { limits.waitAfterFailures(from: from) != nil }

    /// Finds the app that the request names. The audit has the request from here on.
    package func app(called id: String) async throws -> UnverifiedApp? {
        attempted(try await limits.find(.id(id), from: from))
    }

    /// Finds the app for requests that name no app.
    package func defaultApp() async throws -> UnverifiedApp? {
        attempted(try await limits.defaultApp())
    }

    private func attempted(_ app: CachedApp?) -> UnverifiedApp? {
        guard let app else { return nil }
        audited = (app.id, AuditTrail.readerActor)
        return UnverifiedApp(access: app)
    }

    /// Authenticates a caller with a key of the app.
    ///
    /// - Returns: `nil` if the proof is invalid; the failure is neither counted nor refused here.
    /// - Throws: `Refusal`.
    package func caller(by proof: Proof) async throws -> Caller? {
        guard let app = try await limits.app(of: proof, from: from) else { return nil }
        let isMaster = proof.rights == .master
        audited = (app.id, isMaster ? AuditTrail.masterKeyActor : AuditTrail.readerActor)
        do { try limits.countRequest(of: app, proof.rights) } catch {
            throw notingRetryAfter(error)
        }
        guard !proof.isTooOld(for: app) else { throw Refusal.signatureTooOld }
        return Caller(app: app, rights: proof.rights, context: self)
    }

    /// Counts the request of an authenticated reader.
    ///
    /// - Throws: `Refusal.tooManyRequests`.
    package func countAuthenticated(of app: UnverifiedApp) throws {
        audited = (app.id, AuditTrail.readerActor)
        do { try limits.countReader(of: app.access) } catch { throw notingRetryAfter(error) }
    }

    /// Returns the refusal of a request that exceeds a limit of the surface's own.
    package func tooMany(retryAfterSeconds seconds: Int) -> any Error {
        notingRetryAfter(Refusal.tooManyRequests(retryAfterSeconds: seconds))
    }
}
