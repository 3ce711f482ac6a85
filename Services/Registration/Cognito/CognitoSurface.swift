import Cryptography
import Gateway
import HTTPServer
import JSON
import PushCore
import PushEvents
import Storage

/// Amazon Cognito Sync, API version 2014-06-30, under `/identitypools`: datasets that the devices of an
/// identity share, and a silent push to the others when one changes.
///
/// A pool is linked to an app. The access key `<app>`, with the app key as its secret, has the
/// rights of an identity; `<app>:master` has those of a developer. Each loop has one instance,
/// which uses the loop's database.
struct CognitoSurface: Surface {
    let database: PushDatabase
    let tokens: CognitoTokens
    let sessions: SyncSessionCounts
    let topics: KafkaTopics

    static let masterSuffix = ":master"
    private static let base = "/identitypools"
    /// JSON may use six bytes for a character, and a request may have a megabyte of text.
    private static let maximumUpdateBytes = 8 << 20
    private static let maximumBodyBytes = 64 << 10

    func owns(_ request: HTTPServerRequest) -> Bool { request.isBelow(Self.base) }

    var cors: CORS? {
        CORS(
            Self.base,
            Self.base + "/*rest",
            methods: "GET, POST, DELETE",
            headers: "authorization, content-type, x-amz-date, x-amz-content-sha256, "
                + "x-amz-security-token, x-amz-user-agent, x-amz-client-context, "
                + "amz-sdk-invocation-id, amz-sdk-request",
            exposed: "x-amzn-RequestId, x-amzn-ErrorType, Date"
        )
    }

    var routes: [SurfaceRoute] {
        let pool = "/:pool"
        let identity = pool + "/identities/:identity"
        let dataset = identity + "/datasets/:dataset"
        let subscription = dataset + "/subscriptions/:device"
        return [
            on(.get, "", .developer, listPools), on(.get, pool, .developer, poolUsage),
            on(.get, pool + "/configuration", .developer, configuration),
            on(.post, pool + "/configuration", .developer, configure),
            on(.get, pool + "/events", .developer, events),
            on(.post, pool + "/events", .developer, setEvents),
            on(.post, pool + "/bulkpublish", .developer, bulkPublish),
            on(.post, pool + "/getBulkPublishDetails", .developer, bulkPublishDetails),
            on(.post, pool + "/identity/:identity/device", .identity, registerDevice),
            on(.get, identity, .identity, identityUsage),
            on(.get, identity + "/datasets", .identity, listDatasets),
            on(.get, dataset, .identity, describeDataset),
            on(.delete, dataset, .identity, deleteDataset),
            on(.post, dataset, .identity, atMost: Self.maximumUpdateBytes, updateRecords),
            on(.get, dataset + "/records", .identity, listRecords),
            on(.post, subscription, .identity, subscribe),
            on(.delete, subscription, .identity, unsubscribe),
        ] + [HTTPMethod.get, .post, .delete].map(nothing)
    }

    private enum Right { case identity, developer }

    private typealias Operation =
        @Sendable (CognitoRequest, Caller) async throws -> HTTPServerResponse

    private func on(
        _ method: HTTPMethod,
        _ path: String,
        _ right: Right,
        atMost maximumBodyBytes: Int = CognitoSurface.maximumBodyBytes,
        _ operation: @escaping Operation
    ) -> SurfaceRoute {
        SurfaceRoute(
            method,
            Self.base + path,
            maximumBodyBytes: maximumBodyBytes,
            handler: .caller { request, caller in
                guard right == .identity || caller.isMaster else {
                    throw CognitoError(
                        .notAuthorized,
                        "These credentials are not valid for accessing this resource"
                    )
                }
                return try await operation(try CognitoRequest(request), caller)
            }
        )
    }

    /// Returns the route of all other paths. It reports a name that is empty or that clients
    /// resolve in the path, `.` or `..`, as such a call reaches another path than the intended one.
    private func nothing(_ method: HTTPMethod) -> SurfaceRoute {
        SurfaceRoute(
            method,
            Self.base + "/*rest",
            maximumBodyBytes: Self.maximumBodyBytes,
            handler: .unauthenticated { request, _ in
                try CognitoRequest.checkLabels(of: request)
                throw Refusal.nothingHere
            }
        )
    }

    func proof(of request: HTTPServerRequest, _ context: RequestContext) throws -> Proof {
        try CognitoRequest.checkLabels(of: request)
        guard !AWSSignature.isInQuery(of: request) else { throw Refusal.unauthorized }
        guard request.headers.contains("authorization") else {
            // The pool's app decides whether calls without credentials are allowed.
            guard let pool = request.pathParameters["pool"], SyncID.isWellFormed(pool) else {
                throw Refusal.unauthorized
            }
            return Proof(unsignedFor: pool)
        }
        guard let signature = AWSSignature(request), signature.isCurrent(at: .now()) else {
            throw context.refusal()
        }
        let isMaster = signature.accessKey.hasSuffix(Self.masterSuffix)
        return Proof(
            app: isMaster
                ? String(signature.accessKey.dropLast(Self.masterSuffix.count))
                : signature.accessKey,
            rights: isMaster ? .master : .client,
            isProved: signature.isSigned(by:)
        )
    }
}
