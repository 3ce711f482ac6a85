import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Output of commands", .serialized, .timeLimit(.minutes(2)))
    struct PrintedTests {
        /// ESC, CSI of C1, DEL, a return, marks of direction, a line separator, a tag.
        private static let hostile =
            "x\u{1B}[2J\u{9B}31m\u{7F}\r\u{202E}desrever\u{2066}\u{200F}\u{2028}\u{E0041}y"
        /// The same as an SQL literal.
        private static let literal = "'\(hostile)'"

        private func seed(_ carillon: Operator, _ kafka: KafkaClient) async throws -> String {
            try await carillon.says("migrate")
            try await carillon.says("app", "create", "shop")
            let (text, schema) = (
                Self.literal,
                JSONValue.object([
                    "title": .string(Self.hostile), "type": "object", "required": ["_id"],
                    "properties": [
                        "_id": ["type": "string"],
                        "name": ["type": "string", "description": .string(Self.hostile)],
                    ],
                ])
            )
            try carillon.createTopic("ingest.Hostile")
            try await carillon.says(
                "ingest",
                "type",
                "put",
                "shop",
                "Hostile",
                "--schema",
                "-",
                input: schema.text
            )
            _ = try await carillon.database.query(
                """
                insert into installations (app, object_id, device_type, provider, identity, channels,
                    installation_id, locale, apns_topic, fields, invalid_reason, valid)
                values ('shop', 'phone', 'ios', 'apns', \(text), ARRAY['news', \(text)], \(text), \(text),
                    \(text), jsonb_build_object('name', \(text)), \(text), false);
                insert into pushes (id, app, event_source, event_id, request, status, error, targeted,
                    failed, notes, finished_at)
                values ('00000000-0000-8000-8000-000000000001', 'shop', \(text), \(text),
                    json_build_object('data', json_build_object('alert', \(text))), 'done', \(text), 1, 1, '{}', now());
                insert into deliveries (day, push_id, target, app, installation_id, provider, token, lane,
                    state, attempts, last_status, last_reason, created_at)
                values ((now() at time zone 'utc')::date, '00000000-0000-8000-8000-000000000001',
                    \(text), 'shop', \(text), 'apns', \(text), 0, 2, 1, 400, \(text), now());
                insert into audit (app, actor, action, targets, address, status)
                values ('shop', \(text), \(text), ARRAY[\(text)], \(text), 200);
                insert into secure_payloads (id, app, identity, push_id, is_sealed, read_once,
                    expires_at, ends_at)
                values ('12', 'shop', \(text), '00000000-0000-8000-8000-000000000001', false, false,
                    now() + interval '1 day', now() + interval '1 day');
                insert into config_tokens (app, name, digest) values ('shop', \(text), '\\x01');
                insert into config_versions (app, namespace, version, template, description, user_name,
                    state, reason)
                values ('shop', 'firebase', 1, json_build_object('parameters', json_build_object('a',
                    json_build_object('description', \(text)))), \(text), \(text), 1, \(text));
                insert into config_heads (app, namespace, last_version, current_version)
                values ('shop', 'firebase', 1, 1);
                insert into logins (app, issuer, audience, jwks, identity_prefix)
                values ('shop', \(text), \(text), '{"keys": []}', \(text));
                insert into identities (app, id, fields)
                values ('shop', \(text), jsonb_build_object('name', \(text)));
                """
            )
            try await kafka.produce(
                key: Self.hostile,
                headers: [
                    ("error.reason", Self.hostile), ("error.detail", Self.hostile),
                    ("app", Self.hostile), ("source.topic", Self.hostile),
                    (Self.hostile, Self.hostile),
                ],
                value: Array(Self.hostile.utf8),
                to: "push.dead-letters"
            )
            let letters = try await carillon.says("dead-letters", "list", "--json")
            let letter = try JSONValue.parse(letters.split(separator: "\n").map(String.init)[0])
            return try #require(letter["id"]?.string)
        }

        @Test("No command prints a control character of stored data, and JSON keeps its values")
        func everywhere() async throws {
            try await withOperator { carillon in
                let kafka = KafkaClient(bootstrapServers: carillon.bootstrapServers)
                let letter = try await seed(carillon, kafka)
                let push = "00000000-0000-8000-8000-000000000001"
                let commands: [[String]] = [
                    ["app", "list"], ["app", "show", "shop"], ["app", "fields", "shop"],
                    ["app", "index", "shop"], ["audit", "shop"],
                    ["export", "shop", "--identity", Self.hostile],
                    ["erase", "shop", "--identity", Self.hostile, "--dry-run"],
                    ["installations", "list", "shop"], ["installations", "show", "shop", "phone"],
                    ["installations", "restore", "shop"], ["push", "list", "shop"],
                    ["push", "show", push], ["push", "failures", push],
                    ["config", "get", "shop"], ["config", "versions", "shop"],
                    ["config", "status"], ["config", "status", "shop"],
                    ["config", "token", "list", "shop"],
                    ["config", "token", "remove", "shop", "no \(Self.hostile)"],
                    ["credentials", "list", "shop"], ["login", "list", "shop"],
                    ["login", "remove", "shop", "--issuer", Self.hostile, "--audience", "none"],
                    ["secure", "list", "shop"], ["secure", "delete", "shop", Self.hostile],
                    ["ingest", "type", "list", "shop"],
                    ["ingest", "type", "show", "shop", "Hostile"],
                    ["dead-letters", "list"], ["dead-letters", "show", letter],
                    ["dead-letters", "replay", letter, "--dry-run"],
                    ["audience", "explain", "shop", "--where", #"{"name": "\#(Self.hostile)"}"#],
                    ["identity", "remove-secret", "shop", Self.hostile], ["keys", "status"],
                    ["doctor"], ["app", "show", Self.hostile], [Self.hostile],
                    ["push", "show", "--event", Self.hostile], ["sync", "show", Self.hostile],
                ]
                for words in commands {
                    for more in [[], ["--json"]] {
                        let answer = try await carillon(words + more)
                        for text in [answer.output, answer.errors] {
                            let bad = text.unicodeScalars.filter { !Self.mayBePrinted($0) }
                            #expect(bad.isEmpty, "\(words.prefix(3)) \(more): \(bad)")
                        }
                        guard answer.exit == .status(0), more == ["--json"] else { continue }
                        for line in answer.output.split(separator: "\n") where !line.isEmpty {
                            #expect(throws: Never.self, "\(words)") {
                                try JSONValue.parse(String(line))
                            }
                        }
                    }
                }
                let type = try await carillon.json("ingest", "type", "show", "shop", "Hostile")
                #expect(type["schema"]?["title"]?.string == Self.hostile)
                let phone = try await carillon.json("installations", "show", "shop", "phone")
                #expect(phone["name"]?.string == Self.hostile)
                let shown = try JSONValue.parse(
                    try await carillon.says("dead-letters", "show", letter)
                )
                #expect(shown["value"]?.string == Self.hostile)
                #expect(shown["headers"]?.array?.last?["name"]?.string == Self.hostile)
            }
        }

        private static func mayBePrinted(_ scalar: Unicode.Scalar) -> Bool {
            switch scalar.properties.generalCategory {
            case .control: scalar == "\n"
            case .format, .lineSeparator, .paragraphSeparator: false
            default: true
            }
        }
    }
}
