import Explain
import InstallationStorage
import JSON
import PushCore
import PushStorage
import ServiceKit
import Storage

extension Command {
    static let pushExplain = Command(
        "push explain <push id> <installation>",
        "Explain why a device got a push, or why not",
        options: [
            .flag("--content", "show the payload too; it is made again, from the device of now"),
            json,
        ]
    ) { arguments, context in
        let id = try pushID(arguments.operand(0, "push id"))
        let name = try arguments.operand(1, "installation")
        let database = try await context.database()
        let push = try await existing(push: id, database)
        let explanation = try await database.explanations.explain(
            push,
            app: push.app,
            installation: try await installationID(of: name, push.app, database)
        )
        return answer(explanation, arguments)
    }

    static let installationsExplain = Command(
        "installations explain <app> <id>",
        "Explain why a device gets no push at all"
    ) { arguments, context in
        let (database, app) = try await context.existingApp(arguments)
        let name = try arguments.operand(1, "id")
        let explanation = try await database.explanations.explain(
            nil,
            app: app,
            installation: try await installationID(of: name, app, database)
        )
        return answer(explanation, arguments)
    }

    /// Returns the object id of the only installation whose id begins with this one. A deleted or
    /// unknown installation can be explained too, by its whole id.
    private static func installationID(
        of name: String,
        _ app: String,
        _ database: PushDatabase
    ) async throws -> String {
        let isKnown =
            try await database.installations.find(
                app: app,
                named: name,
                beginnings: name.utf8.count >= shortestBeginning,
                limit: 1
            ).first != nil
        return isKnown
            ? try await existing(installation: name, of: app, database).objectID : name
    }

    private static func answer(_ explanation: Explanation, _ arguments: Arguments) -> Int32 {
        let showsContent = arguments.has("--content")
        return arguments.answer(
            explanation.json(showingContent: showsContent),
            ExplanationText.text(of: explanation, showingContent: showsContent)
        )
    }
}

/// An explanation for a terminal.
enum ExplanationText {
    static func text(of explanation: Explanation, showingContent: Bool) -> String {
        var parts = [
            Terminal.table(
                [["answer", explanation.sentence.text]]
                    + explanation.notes.map { ["", $0.text] }
                    + [
                        ["next step", explanation.nextStep.text],
                        ["reason", explanation.reason.rawValue],
                    ]
            )
        ]
        for step in explanation.steps {
            var lines = ["\(step.question.title.text) \(step.summary.text)"]
            if !step.facts.isEmpty { lines.append(table(of: step.facts)) }
            lines += details(of: step.question, explanation, showingContent)
            parts.append(lines.joined(separator: "\n"))
        }
        return parts.joined(separator: "\n\n")
    }

    private static func table(of facts: [Explanation.Fact]) -> String {
        indented(
            facts.map { fact in
                [fact.label.text, fact.value?.text ?? "not stored"]
                    + (fact.tense == .now ? ["now"] : [])
            }
        )
    }

    private static func details(
        of question: Explanation.Step.Question,
        _ explanation: Explanation,
        _ showingContent: Bool
    ) -> [String] {
        switch question {
        case .audience:
            guard !explanation.clauses.isEmpty else { return [] }
            let rows = explanation.clauses.map { clause in
                [
                    clause.condition.text, word(clause.now) ?? "unknown", clause.value ?? "",
                    word(clause.then) ?? "not stored",
                ]
            }
            return [indented([["CONDITION", "NOW", "VALUE NOW", "THEN"]] + rows)]
        case .content:
            guard showingContent, let payload = explanation.payload, payload.problem == nil else {
                return []
            }
            return [indented([[payload.body]])]
        case .provider:
            guard !explanation.attempts.isEmpty else { return [] }
            let rows = explanation.attempts.map { attempt in
                [
                    String(attempt.number), Phrase.Value.time(attempt.at).text,
                    attempt.status.map(String.init) ?? "-", attempt.reason ?? "-",
                    attempt.messageID ?? "-",
                ]
            }
            return [indented([["ATTEMPT", "AT", "STATUS", "REASON", "PROVIDER'S ID"]] + rows)]
        case .device:
            return explanation.causes.isEmpty
                ? []
                : [
                    indented(
                        explanation.causes.map { [$0.rank.rawValue, $0.cause.text, $0.why.text] }
                    )
                ]
        case .block: return []
        }
    }

    private static func word(_ verdict: Bool?) -> String? { verdict.map { $0 ? "yes" : "no" } }

    private static func indented(_ rows: [[String]]) -> String {
        Terminal.table(rows.map { [" "] + $0 })
    }
}
