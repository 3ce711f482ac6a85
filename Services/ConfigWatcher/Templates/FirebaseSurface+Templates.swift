import ConfigStorage
import EventLoop
import Gateway
import HTTPServer
import JSON
import PushCore
import PushEvents
import RemoteConfig

/// The requests of publishers.
extension FirebaseSurface {
    private typealias Answer =
        @Sendable (HTTPServerRequest, PublisherCall) async throws -> HTTPServerResponse

    /// One request of a publisher, about one template.
    struct PublisherCall: Sendable {
        let caller: Caller
        let publisher: Publisher
        let namespace: ConfigNamespace
        let query: QueryParameters
        let context: RequestContext

        var app: String { caller.appID }
        var user: ConfigUser { publisher.user(of: app) }
    }

    /// The right that a request needs.
    private enum Right {
        case reading, writing
    }

    var publisherRoutes: [SurfaceRoute] {
        let templates: [(HTTPMethod, String, [String], Right, String, Answer)] = [
            (
                .get, "remoteConfig", ["versionNumber"], .reading, "Get a template",
                { try await template($0, $1) }
            ),
            (
                .put, "remoteConfig", ["validateOnly"], .writing,
                "Publish a template over the version that If-Match names",
                { try await publish($0, $1) }
            ),
            (
                .get, "remoteConfig:listVersions", VersionPage.parameters, .reading,
                "List versions, newest first", { try await versions($0, $1) }
            ),
            (
                .post, "remoteConfig:rollback", ["versionNumber"], .writing,
                "Make an older version current, as a new one", { try await rollBack($0, $1) }
            ),
            (
                .get, "remoteConfig:downloadDefaults", ["format"], .reading,
                "Get the default values as a file", { try await defaults($0, $1) }
            ),
        ]
        return [
            route(
                .get,
                Self.project,
                .firebase,
                [],
                .reading,
                "Get the project that an app stands for",
                { try await project($0, $1) }
            ),
            route(
                .get,
                Self.path(.server, "serverRemoteConfig"),
                .server,
                ["versionNumber"],
                .reading,
                "Get the template of servers, as the Admin SDKs evaluate it",
                { try await serverTemplate($0, $1) }
            ),
        ]
            + templates.flatMap { method, path, query, right, summary, answer in
                [
                    ("\(Self.project)/\(path)", ConfigNamespace.firebase),
                    (Self.path(.firebase, path), .firebase), (Self.path(.server, path), .server),
                ].map { route(method, $0, $1, query, right, summary, answer) }
            }
    }

    static func path(_ namespace: ConfigNamespace, _ rest: String) -> String {
        "\(project)/namespaces/\(namespace.rawValue)/\(rest)"
    }

    private func route(
        _ method: HTTPMethod,
        _ path: String,
        _ namespace: ConfigNamespace,
        _ parameters: [String],
        _ right: Right,
        _ summary: String,
        _ answer: @escaping Answer
    ) -> SurfaceRoute {
        SurfaceRoute(
            method,
            path,
            appName: "project",
            maximumBodyBytes: ConfigTemplate.maximumBytes,
            handler: .unauthenticated { request, context in
                let (caller, publisher) = try await publisher(request, context)
                if case .token(_, isReadOnly: true) = publisher, right == .writing {
                    throw FirebaseError.readOnly
                }
                let query = try QueryParameters(request, taking: parameters)
                var request = request
                // A few compressed kilobytes may be a template of the largest size, so they are
                // decoded off the loop.
                try await request.decodeBody { try await loop.blocking($0) }
                return try await answer(
                    request,
                    PublisherCall(
                        caller: caller,
                        publisher: publisher,
                        namespace: namespace,
                        query: query,
                        context: context
                    )
                )
            }
        )
        .described(
            RouteDescription(
                summary,
                for: [["configToken"], ["masterKey"]],
                parameters: parameters.map { .query($0) },
                body: method == .get ? nil : .json(["type": "object"]),
                answers: [.init(200, "Done", isFile(path) ? .init("*/*") : .json())],
                refusal: Self.refusal
            )
        )
    }

    private func isFile(_ path: String) -> Bool { path.hasSuffix(":downloadDefaults") }

    // MARK: Reading

    /// `GET /v1/projects/{p}`: returns the project number, which Firebase's command puts into its paths.
    private func project(
        _ request: HTTPServerRequest,
        _ call: PublisherCall
    ) async throws -> HTTPServerResponse {
        let names = call.caller.projectNames
        let asked = request.pathParameters["project"] ?? call.app
        let isNumber = { (name: String) in name.wholeNumber != nil }
        return .json([
            "projectId": .string(
                isNumber(asked) ? names.first { !isNumber($0) } ?? call.app : asked
            ),
            "projectNumber": .string(names.first(where: isNumber) ?? call.app),
            "lifecycleState": "ACTIVE",
        ])
    }

    /// `serverRemoteConfig`: returns the template in the form that the Admin SDKs evaluate.
    private func serverTemplate(
        _ request: HTTPServerRequest,
        _ call: PublisherCall
    ) async throws -> HTTPServerResponse {
        try await template(request, call, isForServers: true)
    }

    private func template(
        _ request: HTTPServerRequest,
        _ call: PublisherCall,
        isForServers: Bool = false
    ) async throws -> HTTPServerResponse {
        var version: Int?
        if let text = call.query["versionNumber"] {
            guard let number = text.wholeNumber else {
                throw FirebaseError.invalid(
                    "versionNumber must be a version's number, not \"\(text.shown)\""
                )
            }
            version = number
        }
        let stored = try await database.config.version(
            call.app,
            call.namespace.rawValue,
            version
        )
        if var stored {
            if isForServers, let template = stored.template?.object {
                // Parsing expressions and compiling their patterns may take long, so it runs off
                // the loop.
                let evaluated = try await loop.blocking {
                    ConfigTemplate.evaluatedByServers(template)
                }
                stored.template = .object(evaluated)
            }
            return TemplateAnswer.response(stored, call.namespace)
        }
        guard version ?? 0 == 0 else { throw FirebaseError.versionNotFound }
        if version == 0 {
            let head = try await database.config.head(call.app, call.namespace.rawValue)
            guard head.currentVersion == 0 else { throw FirebaseError.versionNotFound }
        }
        return TemplateAnswer.response(
            ConfigTemplate.empty.object,
            version: ["versionNumber": "0"],
            etag: TemplateAnswer.etag(call.app, call.namespace, 0)
        )
    }

    private func versions(
        _ request: HTTPServerRequest,
        _ call: PublisherCall
    ) async throws -> HTTPServerResponse {
        let page = try VersionPage(call.query)
        let found = try await database.config.versions(
            call.app,
            call.namespace.rawValue,
            page.filter
        )
        var object: JSONObject = [
            "versions": .array(found.map { .object($0.json) })
        ]
        if let last = found.last, found.count == page.filter.limit, last.version > 1 {
            var rest = page.filter
            rest.before = last.version
            rest.limit = 1
            let more = try await database.config.versions(call.app, call.namespace.rawValue, rest)
            if !more.isEmpty { object["nextPageToken"] = .string(page.next(after: last.version)) }
        }
        return .json(.object(object))
    }

    private func defaults(
        _ request: HTTPServerRequest,
        _ call: PublisherCall
    ) async throws -> HTTPServerResponse {
        let text = call.query["format"] ?? ""
        guard let format = DefaultsFormat(rawValue: text) else {
            throw FirebaseError.invalid("format must be JSON, PLIST or XML, not \"\(text.shown)\"")
        }
        let stored = try await database.config.version(call.app, call.namespace.rawValue)
        let template =
            try stored?.template.map {
                try ConfigTemplate($0, namespace: call.namespace, isStored: true)
            } ?? .empty
        return HTTPServerResponse(
            status: 200,
            headers: [
                "Content-Type": format.contentType,
                "ETag": TemplateAnswer.etag(call.app, call.namespace, stored?.version ?? 0),
            ],
            body: format.render(template.defaults)
        )
    }

    // MARK: Publishing

    private func publish(
        _ request: HTTPServerRequest,
        _ call: PublisherCall
    ) async throws -> HTTPServerResponse {
        let isValidation = try Self.isValidation(call.query)
        let (body, namespace) = (request.body, call.namespace)
        let template = try await pool.run(of: call.app) {
            try ConfigTemplate(bytes: body, namespace: namespace)
        }
        guard let expected = Self.expected(request, call) else {
            let head = try await database.config.head(call.app, call.namespace.rawValue)
            throw FirebaseError.versionMismatch(
                expected: "named by If-Match",
                found: head.currentVersion,
                project: request.pathParameters["project"] ?? ""
            )
        }
        if isValidation { return try await validate(template, expected, call) }
        let new = NewConfigVersion(
            app: call.app,
            namespace: call.namespace.rawValue,
            template: template.object,
            description: template.versionDescription,
            user: call.user
        )
        let stored = try await turns.take(of: call.app, for: request.caller) {
            try await database.config.publish(new, expecting: expected, record: records(of: call))
        }
        return published(stored, call)
    }

    /// - Throws: `ConfigVersionMismatch`.
    private func validate(
        _ template: ConfigTemplate,
        _ expected: ExpectedConfigVersion,
        _ call: PublisherCall
    ) async throws -> HTTPServerResponse {
        let head = try await database.config.head(call.app, call.namespace.rawValue)
        if case .version(let version) = expected, version != head.currentVersion {
            throw ConfigVersionMismatch(expected: version, found: head.currentVersion)
        }
        var version: JSONObject = ["versionNumber": .string(String(head.currentVersion))]
        if !template.versionDescription.isEmpty {
            version["description"] = .string(template.versionDescription)
        }
        return TemplateAnswer.response(
            template.object,
            version: version,
            etag: TemplateAnswer.etag(call.app, call.namespace, head.currentVersion) + "-0"
        )
    }

    private func rollBack(
        _ request: HTTPServerRequest,
        _ call: PublisherCall
    ) async throws -> HTTPServerResponse {
        let target = try Self.rollbackTarget(request, call.query)
        let stored = try await turns.take(of: call.app, for: request.caller) {
            try await database.config.rollBack(
                call.app,
                call.namespace.rawValue,
                to: target,
                by: call.user,
                record: records(of: call)
            )
        }
        return published(stored, call)
    }

    private func published(
        _ stored: StoredConfigVersion,
        _ call: PublisherCall
    ) -> HTTPServerResponse {
        call.context.note("\(stored.namespace)/\(stored.version)")
        if let type = ConfigUpdateType(rawValue: stored.updateType) { metrics.published(type) }
        return TemplateAnswer.response(stored, call.namespace)
    }

    private func records(
        of call: PublisherCall
    ) -> @Sendable (Int, ConfigUpdateType) -> OutgoingRecord {
        ConfigStore.records(of: call.app, call.namespace.rawValue, topics)
    }

    // MARK: Parameters

    /// Whether to validate only: clients write `validate_only`, the documentation `validateOnly`.
    private static func isValidation(_ query: QueryParameters) throws(FirebaseError) -> Bool {
        var isValidation = false
        for value in query.all("validateOnly") {
            switch value.lowercased() {
            case "false", "0": continue
            case "true", "1", "": isValidation = true
            default:
                throw .invalid("validateOnly must be true or false, not \"\(value.shown)\"")
            }
        }
        return isValidation
    }

    /// - Returns: `nil` without `If-Match`, or if it does not name a version.
    private static func expected(
        _ request: HTTPServerRequest,
        _ call: PublisherCall
    ) -> ExpectedConfigVersion? {
        let tags = request.headers.all("if-match")
        guard tags.count == 1, let tag = tags.first else { return nil }
        if tag == "*" { return .any }
        return TemplateAnswer.version(ofETag: tag, call.app, call.namespace).map { .version($0) }
    }

    /// Returns the version to roll back to. Firebase's command sends it in the query, without a
    /// body; the SDKs send it in the body. It is a number or a string, and `null` counts as absent.
    static func rollbackTarget(
        _ request: HTTPServerRequest,
        _ query: QueryParameters
    ) throws -> Int {
        var given: JSONValue = query["versionNumber"].map { .string($0) } ?? .null
        if !request.body.isEmpty {
            let body = try ConfigTemplate.json(request.body)
            guard let members = body.object else {
                throw FirebaseError.invalid("the body must be an object, not a \(body.kind)")
            }
            for (name, value) in members {
                guard name == "versionNumber" || name == "version_number" else {
                    throw FirebaseError.unknownField(name)
                }
                if !value.isNull { given = value }
            }
        }
        guard let target = given.integer ?? given.string?.wholeNumber, target > 0 else {
            throw FirebaseError.invalid(
                "versionNumber must be a version's number, not \(given.text.shown)"
            )
        }
        return target
    }
}
