import IngestStorage
import JSON
import JSONSchema
import PushCore
import ServiceKit
import Testing

@testable import CLI

@Suite("Changes that a declaration makes to an ingest type", .timeLimit(.minutes(1)))
struct IngestTypeChangeTests {
    private static let schema: JSONValue = [
        "type": "object", "required": ["_id"],
        "properties": ["_id": ["type": "string"], "name": ["type": "string"]],
    ]

    private func change(
        _ schema: JSONValue = schema,
        from current: JSONValue? = schema,
        retentionDays: Int? = 90,
        subject: String? = "name"
    ) throws -> IngestTypeChange {
        IngestTypeChange(
            app: "shop",
            name: "Weather",
            schema: try ObjectSchema(schema.bytes, type: "Weather"),
            current: current.map {
                StoredIngestType(
                    number: 7,
                    app: "shop",
                    name: "Weather",
                    version: 3,
                    schema: $0,
                    retentionDays: 90,
                    subjects: ["name"],
                    createdAt: .now(),
                    updatedAt: .now()
                )
            },
            retentionDays: retentionDays,
            subject: subject
        )
    }

    @Test("An equal declaration changes nothing, whatever the order of its members")
    func same() throws {
        let text = #"{"properties":{"name":{"type":"string"},"_id":{"type":"string"}},"#
        let reordered = try JSONValue.parse(text + #""required":["_id"],"type":"object"}"#)
        for schema in [Self.schema, reordered] {
            let change = try change(schema)
            #expect(!change.isChange && !change.isNewVersion && change.nextVersion == 3)
            #expect(change.sentence(isDryRun: false).contains("version 3 already"))
        }
    }

    @Test("A new retention or subject is a change without a new version")
    func options() throws {
        for change in [
            try change(retentionDays: nil), try change(retentionDays: 30),
            try change(subject: nil),
        ] {
            #expect(change.isChange && !change.isNewVersion && change.nextVersion == 3)
            #expect(change.sentence(isDryRun: true).hasPrefix("would change"))
        }
    }

    @Test("A new type has version 1, and another schema the next version")
    func versions() throws {
        #expect(try change(from: nil).nextVersion == 1)
        #expect(try change(from: nil).sentence(isDryRun: true).contains("version 1"))
        let wider: JSONValue = [
            "type": "object", "required": ["_id"],
            "properties": [
                "_id": ["type": "string"], "name": ["type": "string"], "more": ["type": "integer"],
            ],
        ]
        let change = try change(wider)
        #expect(change.isNewVersion && change.nextVersion == 4)
        #expect(change.columns.map(\.name) == ["name", "more"])
        #expect(change.columns.map(\.type) == [.text, .bigint])
    }

    @Test("A retention must be a number of whole days")
    func retention() throws {
        #expect(try RetentionOption.days("1d") == 1)
        #expect(try RetentionOption.days("48h") == 2)
        #expect(try RetentionOption.days("none") == nil)
        for text in ["0d", "23h", "25h", "90", "d", "-1d", "36501d", "999999999999d", ""] {
            #expect(throws: ArgumentsError.self, "\(text)") { try RetentionOption.days(text) }
        }
    }
}
