import HTTPServer
import JSON

/// Adds the routes of the control: plain HTTP and JSON, for people and tests.
func addControlRoutes(to router: inout Router, _ core: SimulatorCore) {
    router.errorResponse = { error, _ in
        if let error = error as? ControlError {
            return .json(
                ["error": .string(error.description), "field": .string(error.field)],
                status: 400
            )
        }
        if let problem = error as? HTTPProblem { return .problem(problem) }
        return .problem(HTTPProblem(status: 500))
    }
    router.on(.get, "/received") { request in
        let text = request.queryValue("after") ?? "0"
        guard let after = Int(text), after >= 0 else {
            throw ControlError("after", "is not a whole number")
        }
        return HTTPServerResponse(
            status: 200,
            headers: ["Content-Type": "application/json"],
            body: await core.receivedListing(after: after)
        )
    }
    router.on(.delete, "/received") { _ in
        await core.forgetReceived()
        return .empty(204)
    }
    router.on(.get, "/counts") { _ in .json(await core.counts()) }
    router.on(.get, "/rules") { _ in .json(await core.ruleListing()) }
    router.on(.put, "/rules", maximumBodyBytes: 16 << 20) { request in
        try await core.replaceRules(try parseBody(request))
        return .json(await core.ruleListing())
    }
    router.on(.get, "/settings") { _ in .json(await core.settingsListing()) }
    router.on(.put, "/settings") { request in
        try await core.change(try parseBody(request))
        return .json(await core.settingsListing())
    }
    router.on(.put, "/credentials") { request in
        let credentials = try CredentialSet(try parseBody(request))
        await core.add(credentials)
        return .json([
            "apns": JSONValue(credentials.apns.count), "fcm": JSONValue(credentials.fcm.count),
            "wns": JSONValue(credentials.wns.count),
        ])
    }
}

private func parseBody(_ request: HTTPServerRequest) throws(ControlError) -> JSONValue {
    do throws(JSONError) {
        return try JSONValue.parse(request.body)
    } catch {
        throw ControlError("body", "is not JSON: \(error)")
    }
}

/// Routes every path of a port to the core, with any method: providers refuse in their own words.
func addProviderRoutes(to router: inout Router, _ core: SimulatorCore, by entrance: ListenerKind) {
    let prefix = entrance == .plain ? "/mpns" : ""
    for method in HTTPMethod.allCases {
        router.on(method, prefix + "/*rest", maximumBodyBytes: 1 << 20) { request in
            await core.serve(request, by: entrance)
        }
    }
}
