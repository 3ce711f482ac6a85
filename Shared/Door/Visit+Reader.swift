import Apps
import PushCore

/// The app that a caller means, of whom nothing is proved yet.
package struct VisitedApp: Sendable {
    fileprivate let access: AppAccess

    package var id: String { access.id }
}

/// How somebody is let in who proves another thing than a key of the app: the surface looks at his
/// proof, the door counts and writes down.
///
/// `arrive` first; then whose app is meant (`app`, `unnamedApp`), from which on the audit keeps the
/// attempt however it ends; then `letIn`, or `refusal`.
extension Visit {
    /// Counts the request by its address, once, before anything of it is looked at. `admit` does so by
    /// itself.
    ///
    /// - Throws: `Refusal.tooManyRequests`.
    package func arrive() throws {
        do { try limits.arrive(from: from) } catch { throw remembered(error) }
    }

    /// Whether too much from this address was wrong: then only proofs are looked at that nobody finds
    /// by trying.
    package var isAfterFailures: Bool { limits.waitAfterFailures(from: from) != nil }

    /// The app that the request names. What it asks is in the audit from here on.
    package func app(called id: String) async throws -> VisitedApp? {
        attempted(try await limits.find(.id(id), from: from))
    }

    /// The app that is meant where the request names none.
    package func unnamedApp() async throws -> VisitedApp? {
        attempted(try await limits.unnamedApp())
    }

    private func attempted(_ app: AppAccess?) -> VisitedApp? {
        guard let app else { return nil }
        audited = (app.id, AuditTrail.readerActor)
        return VisitedApp(access: app)
    }

    /// Lets in who has a key of the app.
    ///
    /// - Returns: Nobody where the proof is none; that is neither counted nor refused here.
    /// - Throws: `Refusal`.
    package func caller(by proof: Proof) async throws -> Caller? {
        guard let app = try await limits.app(of: proof, from: from) else { return nil }
        let isMaster = proof.rights == .master
        audited = (app.id, isMaster ? AuditTrail.masterKeyActor : AuditTrail.readerActor)
        do { try limits.countRequest(of: app, proof.rights) } catch { throw remembered(error) }
        guard !proof.isTooOld(for: app) else { throw Refusal.signatureTooOld }
        return Caller(app: app, rights: proof.rights, visit: self)
    }

    /// Counts the request of a reader who is proved.
    ///
    /// - Throws: `Refusal.tooManyRequests`.
    package func letIn(of app: VisitedApp) throws {
        audited = (app.id, AuditTrail.readerActor)
        do { try limits.countReader(of: app.access) } catch { throw remembered(error) }
    }

    /// The answer to one request too many, by a limit of the surface's own.
    package func tooMany(retryAfterSeconds seconds: Int) -> any Error {
        remembered(Refusal.tooManyRequests(retryAfterSeconds: seconds))
    }
}
