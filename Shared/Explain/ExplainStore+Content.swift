import Cryptography
import InstallationStorage
import JSON
import Postgres
import PushCore
import PushProviders
import PushStorage
import Storage

/// The conditions of an audience, and the content, both for the device as it is now.
extension ExplainStore {
    // MARK: Conditions

    /// One condition, with selectors that contain nothing else.
    private struct Part {
        let phrase: Phrase
        var selectors = PushRequest.Selectors()
        var value: String?
        var isForeign = false

        init(_ phrase: Phrase) {
            self.phrase = phrase
            // So that the condition about template sends is a part of its own.
            selectors.isOfTemplate = true
        }
    }

    /// Evaluates each condition of an audience by the SQL that selects audiences.
    func clauses(
        of request: PushRequest,
        _ installation: Installation
    ) async throws -> [ExplainFacts.ClauseVerdict] {
        switch request.audience {
        case .tokens(let tokens):
            let holds = tokens.contains {
                $0.token == installation.token && $0.platform == installation.platform
            }
            return [
                ExplainFacts.ClauseVerdict("Its token is one that the push names", holds: holds)
            ]
        case .topic(let topic) where installation.platform == .fcm:
            return [
                ExplainFacts.ClauseVerdict(
                    Phrase("It follows FCM's topic {topic}", ["topic": .text(topic.name)]),
                    holds: nil,
                    isForeign: true
                )
            ]
        case .topic, .installations:
            guard let selectors = request.audience.selectors else { return [] }
            return try await verdicts(Self.parts(of: selectors, installation), installation)
        }
    }

    private static func parts(
        of selectors: PushRequest.Selectors,
        _ installation: Installation
    ) -> [Part] {
        var parts: [Part] = []
        if let channels = selectors.channels {
            var part = Part(ClauseWords.list("channels", channels, isArray: true))
            part.selectors.channels = channels
            part.value =
                installation.channels.isEmpty
                ? "none" : ClauseWords.shorten(installation.channels.joined(separator: ", "))
            parts.append(part)
        }
        if let identities = selectors.identities {
            var part = Part(ClauseWords.list("identity", identities))
            part.selectors.identities = identities
            part.value = installation.identity ?? "not set"
            parts.append(part)
        }
        if let names = selectors.installations {
            var part = Part(ClauseWords.list("installation", names))
            part.selectors.installations = names
            part.value = installation.objectID
            parts.append(part)
        }
        for condition in conditions(selectors.condition) {
            var part = Part(ClauseWords.phrase(condition))
            part.selectors.condition = condition
            part.value = ClauseWords.value(condition, installation)
            part.isForeign = ClauseWords.isForeign(condition)
            parts.append(part)
        }
        if let version = selectors.configBelow {
            var part = Part(
                Phrase("It has not fetched config version {version}", ["version": .count(version)])
            )
            part.selectors.configBelow = version
            part.isForeign = true
            parts.append(part)
        }
        if !selectors.isOfTemplate {
            var part = Part("It receives more than template sends")
            part.selectors.isOfTemplate = false
            parts.append(part)
        }
        return parts
    }

    /// Returns the conditions that all must hold, one by one.
    private static func conditions(_ condition: Where?) -> [Where] {
        switch condition {
        case nil: []
        case .all(let parts): parts.flatMap(conditions)
        case let single?: [single]
        }
    }

    private func verdicts(
        _ parts: [Part],
        _ installation: Installation
    ) async throws -> [ExplainFacts.ClauseVerdict] {
        var found: [Bool?]
        do {
            found = try await evaluate(parts, installation)
        } catch let error as StorageError where error.isStatementTimeout {
            // A sub-query takes too long; the others are evaluated without it.
            let own = parts.filter { !$0.isForeign }
            var values = try await evaluate(own, installation)[...]
            found = parts.map { $0.isForeign ? nil : values.popFirst() ?? nil }
        }
        return zip(parts, found).map { part, holds in
            ExplainFacts.ClauseVerdict(
                part.phrase,
                holds: holds,
                value: part.value,
                isForeign: part.isForeign
            )
        }
    }

    private func evaluate(_ parts: [Part], _ installation: Installation) async throws -> [Bool?] {
        guard !parts.isEmpty else { return [] }
        var parameters: [PostgresValue] = [
            .text(installation.app), .text(installation.objectID),
        ]
        var columns: [String] = []
        for (number, part) in parts.enumerated() {
            let before = parameters.count
            do {
                let sql = try part.selectors.conditions(&parameters, app: installation.app)
                columns.append("(TRUE\(sql)) IS TRUE AS c\(number)")
            } catch {
                parameters = Array(parameters.prefix(before))
                columns.append("NULL::boolean AS c\(number)")
            }
        }
        let row = try await database.database.ask(
            """
            SELECT \(columns.joined(separator: ", ")) FROM installations n
            WHERE n.app = $1 AND n.object_id = $2
            """,
            parameters
        ).first
        return try parts.indices.map { try row?.booleanOrNil(.index($0)) }
    }

    // MARK: Content

    /// Makes the content as the dispatcher does, from the stored push and the device of now.
    func payload(
        of push: StoredPush,
        _ request: PushRequest,
        _ installation: Installation,
        _ facts: ExplainFacts
    ) async throws -> Explanation.Payload? {
        guard let platform = facts.delivery?.provider ?? installation.platform else { return nil }
        var request = request
        request.includesPushID =
            facts.settings.sendsPushIDs && PushIdentity.includesPushID(source: push.eventSource)
        if let channels = request.audience.selectors?.channels {
            request.audienceChannels = Array(channels.prefix(PushRequest.maximumAudienceChannels))
        }
        let values = try await values(of: request, installation)
        let locale = LocaleVariants(request.data).choose(for: installation.locale)
        do {
            let template: PayloadTemplate
            if let send = request.deviceTemplate {
                let stored = values?[send.valueField]?.string ?? ""
                request.native = try DeviceTemplate(stored: stored)
                    .native(for: platform, send.properties, now: facts.asOf)
                template = try PayloadTemplate.render(request, pushID: push.id, for: platform)
            } else {
                template = try PayloadTemplate.render(
                    request,
                    pushID: push.id,
                    for: platform,
                    locale: locale
                )
            }
            let rendered = try template.payload(values: values, badge: installation.badge)
            return Explanation.Payload(
                platform: platform,
                locale: locale,
                bytes: rendered.body.count,
                body: String(decoding: rendered.body, as: UTF8.self)
            )
        } catch {
            return Explanation.Payload(
                platform: platform,
                locale: locale,
                bytes: 0,
                body: "",
                problem: error.description
            )
        }
    }

    /// Returns the values of the push's placeholders, from the installation as it is now.
    private func values(
        of request: PushRequest,
        _ installation: Installation
    ) async throws -> JSONObject? {
        let fields = request.templateFields
        guard !fields.isEmpty else { return nil }
        return try await database.singles.execute(
            """
            SELECT \(TemplateValues.sql("$3::text[]", of: "n")) AS fields FROM installations n
            WHERE n.app = $1 AND n.object_id = $2
            """,
            [.text(installation.app), .text(installation.objectID), .textArray(fields)]
        ).first?.jsonOrNil("fields")?.object
    }
}
