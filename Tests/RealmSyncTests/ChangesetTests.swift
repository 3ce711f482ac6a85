import JSON
import RealmSync
import Testing

/// The instructions of changesets, and the objects that they make.
@Suite(.timeLimit(.minutes(1)))
struct ChangesetTests {
    private typealias Writer = ChangesetWriter

    @Test(
        "An integer at each end of an encoding is read",
        arguments: [
            0, 63, 64, 8191, 8192, 1 << 62, .max, .max - 1, -1, -64, -65, -8193, .min, .min + 1,
        ] as [Int64]
    )
    func integers(_ value: Int64) throws {
        let object = try object { $0.update("i", [0x01] + Writer.integer(value)) }
        #expect(object.document["i"] == .integer(value))
    }

    @Test(
        "A decimal keeps its digits",
        arguments: [
            ("08 b9e000 42 00", "12.345"), ("08 00 00 01", "-0"), ("08 01 03 00", "1E+3"),
            ("08 6e 41 00", "1.10"), ("08 01 00 00", "1"), ("08 01 40 00", "0.1"),
            ("08 01 61 00", "0.0000000000000000000000000000000001"),
            ("08 01 62 00", "1E-35"), ("08 7b 03 00", "1.23E+5"), ("08 00 03 00", "0E+3"),
            ("08 01 df2f 01", "-1E+6111"), ("08 01 9f7000", "1E-6176"),
            ("08 ffffffffbfcce3c6b7809feceab7c2f601 00 00", "9999999999999999999999999999999999"),
        ]
    )
    func decimals(_ payload: String, _ text: String) throws {
        var payload = bytes(hex: payload)
        if text == "1E-6176" { payload = [0x08, 0x01] + Writer.integer(-6176) + [0] }
        if text == "-1E+6111" { payload = [0x08, 0x01] + Writer.integer(6111) + [1] }
        let object = try object { $0.update("d", payload) }
        #expect(object.document["d"] == .string(text))
    }

    @Test(
        "A time has its fraction, and the years 0001 to 9999",
        arguments: [
            (0, 0, "1970-01-01T00:00:00Z"), (951_782_400, 0, "2000-02-29T00:00:00Z"),
            (1_700_000_000, 120_000_000, "2023-11-14T22:13:20.120Z"),
            (1_700_000_000, 1000, "2023-11-14T22:13:20.000001Z"),
            (1_700_000_000, 1, "2023-11-14T22:13:20.000000001Z"),
            (-1, -500_000_000, "1969-12-31T23:59:58.500Z"),
            (0, -1, "1969-12-31T23:59:59.999999999Z"),
            (-62_135_596_800, 0, "0001-01-01T00:00:00Z"),
            (253_402_300_799, 999_999_999, "9999-12-31T23:59:59.999999999Z"),
            (-62_135_596_800, -1, nil), (253_402_300_800, 0, nil), (.max, 0, nil), (.min, 0, nil),
        ] as [(Int64, Int64, String?)]
    )
    func times(_ seconds: Int64, _ nanoseconds: Int64, _ text: String?) throws {
        let object = try object {
            $0.update("t", [0x05] + Writer.integer(seconds) + Writer.integer(nanoseconds))
        }
        if let text {
            #expect(object.document["t"] == .string(text) && object.fault == nil)
        } else {
            #expect(object.fault == .time && object.pointer == "/t")
        }
    }

    @Test(
        "A float has the shortest digits that it reads back from",
        arguments: [
            66.7, 0.1, .leastNonzeroMagnitude, .greatestFiniteMagnitude, 16_777_216, -0.0, 1.0 / 3,
        ] as [Float]
    )
    func floats(_ value: Float) throws {
        let bits = (0..<4).map { UInt8(truncatingIfNeeded: value.bitPattern >> ($0 * 8)) }
        let object = try object { $0.update("f", [0x06] + bits) }
        let number = try #require(object.document["f"]?.double)
        #expect(Float(number) == value && "\(number)".count <= "\(value)".count)
    }

    @Test("A value that JSON cannot express refuses its object, unless it is overwritten")
    func notFinite() throws {
        let nan = [0x07, 0, 0, 0, 0, 0, 0, 0xF8, 0x7F] as [UInt8]
        let refused = try object {
            $0.instruction(0x08, field: "l", path: [0], nan + [0])
        }
        #expect(refused.fault == .notFinite && refused.pointer == "/l/0")
        #expect(refused.document["l"] == ["nan"])
        let kept = try object {
            $0.update("d", nan)
            $0.update("d", [0x01, 0x05])
        }
        #expect(kept.fault == nil && kept.document["d"] == 5)
    }

    @Test("A string that is not UTF-8, and one that no object can have, refuse only their object")
    func strings() throws {
        let broken = try object { $0.update("s", [0x03, 0x01, 0xFF]) }
        #expect(broken.fault == .text && broken.pointer == "/s")
        let large = [UInt8](repeating: 0x61, count: (1 << 20) + 1)
        for type in [0x03, 0x04] as [UInt8] {
            let object = try object {
                $0.update("s", [type] + Writer.integer(Int64(large.count)) + large)
                $0.update("i", [0x01, 0x05])
            }
            #expect(object.fault == .tooLarge && object.document["i"] == nil)
        }
        let many = try object { writer in
            for _ in 0..<6 {
                writer.update("s", [0x03] + Writer.integer(200_000) + large.prefix(200_000))
            }
        }
        #expect(many.fault == .tooLarge)
    }

    @Test("Lists are changed as an application changes them")
    func lists() throws {
        let object = try object { writer in
            for (index, text) in ["a", "b", "c", "d"].enumerated() {
                writer.instruction(
                    0x08,
                    field: "l",
                    path: [index],
                    Writer.string(text) + [UInt8(index)]
                )
            }
            writer.instruction(0x08, field: "l", path: [0], Writer.string("z") + [4])
            writer.instruction(0x04, field: "l", path: [1], Writer.string("A") + [5])
            writer.instruction(0x0A, field: "l", path: [2], [5])
            writer.instruction(0x09, field: "l", path: [3], [0, 4])
            writer.instruction(0x08, field: "gone", path: [0], [0x00, 0])
            writer.instruction(0x0B, field: "gone", [1])
            writer.instruction(0x0B, field: "none", [2])
        }
        #expect(object.document["l"] == ["d", "z", "A", "c"])
        #expect(object.document["gone"] == [] && object.document["none"] == [:])
    }

    @Test("Sets, dictionaries and numbers are changed as an application changes them")
    func collections() throws {
        let object = try object { writer in
            for text in ["q", "p", "r"] {
                writer.instruction(0x0C, field: "s", Writer.string(text))
            }
            writer.instruction(0x0D, field: "s", Writer.string("p"))
            writer.instruction(0x0D, field: "s", Writer.string("unknown"))
            for number in 0..<40 as Range<Int> {
                writer.update("d", path: ["k\(number)"], [0x01, UInt8(number)])
            }
            for number in 0..<39 as Range<Int> { writer.update("d", path: ["k\(number)"], [0x43]) }
            writer.update("d", path: ["k0"], [0x02, 0x01])
            writer.instruction(0x05, field: "n", [0x05])
            writer.instruction(0x05, field: "n", Writer.integer(-7))
            writer.update("m", [0x01] + Writer.integer(.max))
            writer.instruction(0x05, field: "m", [0x01])
        }
        #expect(object.document["s"] == ["q", "r"])
        #expect(object.document["d"] == ["k39": 39, "k0": true])
        #expect(object.document["n"] == -2 && object.document["m"] == .integer(.min))
    }

    @Test("Embedded objects and nested collections are made where their path leads")
    func nested() throws {
        let object = try object { writer in
            writer.update("e", [0x41])
            writer.instruction(0x08, field: "e", path: ["tags", 0], Writer.string("x") + [0])
            writer.update("e", path: ["x"], [0x01, 0x01])
            writer.update("m", [0x44])
            writer.instruction(0x08, field: "m", path: [0], [0x42, 0])
            writer.instruction(0x08, field: "m", path: [1], [0x44, 1])
            writer.update("m", path: [0, "k"], [0x02, 0x00])
            writer.update("again", [0x41])
            writer.update("again", path: ["x"], [0x01, 0x01])
            writer.update("again", [0x41])
        }
        #expect(object.document["e"] == ["tags": ["x"], "x": 1])
        #expect(object.document["m"] == [["k": false], []])
        #expect(object.document["again"] == [:])
    }

    @Test("A link is the id of its target")
    func links() throws {
        let object = try object { writer in
            let table = writer.name("T")
            writer.update("a", [0x09] + table + [0x0A] + bytes(hex: "507f1f77bcf86cd799439011"))
            writer.update("b", [0x09] + table + [0x01, 0x05])
            writer.update(
                "c",
                [0x09] + table + [0x0B] + bytes(hex: "3b241101e2bb42558caf4136c566a962")
            )
        }
        #expect(object.document["a"] == "507f1f77bcf86cd799439011")
        #expect(object.document["b"] == "realm/T/int/5")
        #expect(object.document["c"] == "3b241101-e2bb-4255-8caf-4136c566a962")
        let null = try RealmSyncTests.object { writer in
            let table = writer.name("T")
            writer.update("a", [0x09] + table + [0x00])
        }
        #expect(null.fault == .nullKey)
    }

    @Test("Only objects that the transaction creates are decoded")
    func onlyNewObjects() throws {
        var writer = ChangesetWriter()
        // A change of an object from elsewhere is read, and not applied.
        writer.instruction(0x04, "Two", key: 9, field: "a", [0x01, 0x05, 0x00])
        writer.instruction(0x08, "Two", key: 9, field: "l", path: [7], [0x01, 0x05, 0x07])
        writer.instruction(0x03, "Two", key: 9)
        writer.create(key: 1)
        writer.create(key: 2)
        writer.instruction(0x04, key: 2, field: "a", [0x01, 0x05, 0x00])
        writer.create(key: 2)
        writer.create(key: 3)
        writer.instruction(0x03, key: 3)
        writer.create("W", key: 1)
        let objects = try decode(writer.bytes).all
        #expect(objects.map(\.className) == ["V", "V", "W"])
        #expect(objects.map { $0.document["_key"] } == [1, 2, 1])
        #expect(objects[1].document["a"] == 5)
    }

    @Test("A field cannot replace the id, nor the client's key")
    func reservedNames() throws {
        let object = try object { writer in
            writer.update("_id", Writer.string("mine"))
            writer.update("_key", Writer.string("mine"))
        }
        #expect(object.document == ["_id": "realm/V/int/1", "_key": 1])
    }

    @Test("A global key refuses the object")
    func globalKey() throws {
        let object = try #require(try decode(hex: "3f000156 0200 40 0506").all.first)
        #expect(object.fault == .globalKey)
    }

    @Test(
        "A malformed changeset is refused as a whole, with a reason",
        arguments: [
            ("3f", .cut), ("3f00", .cut), ("3f0001", .length), ("3f0041", .length),
            ("3f0001ff", .text), ("3f010156", .stringOrder), ("3f000156 3f000157", .stringOrder),
            ("10", .instruction), ("ff", .instruction), ("3f00ffffffffffffffffff7f", .integer),
            ("3f00ffffffffffffffffff0100", .integer), ("3f00ffffffffffffffffffff", .integer),
            ("0200", .string), ("3f000156 0201", .string), ("3f000156 0240", .string),
            ("3f0000 0200", .className), ("3f000156 020002", .key), ("3f000156 0200", .cut),
            ("3f000156 02000a0000", .cut), ("3f000156 02000301", .string),
            ("3f000156 02004001", .cut), ("3f000156 000003", .type),
            ("3f000156 0000020005", .type), ("3f000156 000002000a02", .flag),
            ("3f000156 0000020a", .string), ("3f000156 0600000c", .type),
            ("3f000156 060001", .string), ("3f000156 0600000102", .flag),
            ("3f000156 060000010004", .collection), ("3f000156 06000001000201", .type),
            ("3f000156 0600000901000a", .string),
            // From here on, on an object with the key 1.
            ("3f000156 02000101 04 00010100 2100", .pathLength),
            ("3f000156 02000101 04 00010100 4000", .pathLength),
            ("3f000156 02000101 04 00010100 0141 0000", .path),
            ("3f000156 02000101 04 00010100 01400a 0000", .string),
            ("3f000156 02000101 04 00010100 00 0c", .type),
            ("3f000156 02000101 04 00010100 00 46", .type),
            ("3f000156 02000101 04 00010100 00 0202 00", .flag),
            ("3f000156 02000101 04 00010100 00 0305 00", .length),
            ("3f000156 02000101 04 00010100 00 0341 00", .length),
            ("3f000156 02000101 04 00010100 00 0405 00", .length),
            ("3f000156 02000101 04 00010100 00 0501c1 00", .cut),
            ("3f000156 02000101 04 00010100 00 050141 00", .time),
            ("3f000156 02000101 04 00010100 00 05008094ebdc0300", .time),
            ("3f000156 02000101 04 00010100 00 06000000", .cut),
            ("3f000156 02000101 04 00010100 00 07000000", .cut),
            (
                "3f000156 02000101 04 00010100 00 08ffffffffffffffffffffffffffffffffff01 0000",
                .decimal
            ),
            (
                "3f000156 02000101 04 00010100 00 08ffffffffffffffffffffffffffffffff7f 0000",
                .decimal
            ),
            ("3f000156 02000101 04 00010100 00 0801e0df0000", .decimal),
            ("3f000156 02000101 04 00010100 00 08010002", .flag),
            ("3f000156 02000101 04 00010100 00 0905", .string),
            ("3f000156 02000101 04 00010100 00 0a0000", .cut),
            ("3f000156 02000101 04 00010100 00 0100 02", .flag),
            ("3f000156 02000101 04 00010100 00 43 00", .path),
            ("3f000156 02000101 08 00010100 00 00 00", .path),
            ("3f000156 02000101 08 00010100 0100 00 40", .path),
            ("3f000156 02000101 08 00010100 01808080808001 00 00", .path),
            ("3f000156 02000101 0b 00010100 00 00", .collection),
            ("3f000156 02000101 0b 00010100 00 04", .collection),
            ("3f000156 02000101 0c 00010100 00 41", .type),
            ("3f000156 02000101 0c 00010100 00 43", .type),
        ] as [(String, RealmChangesetFault.Reason)]
    )
    func malformed(_ hex: String, _ reason: RealmChangesetFault.Reason) {
        var found: RealmChangesetFault.Reason?
        do throws(RealmChangesetFault) { _ = try decode(hex: hex) } catch { found = error.reason }
        #expect(found == reason, "\(hex)")
    }

    @Test(
        "A change that leads nowhere refuses its object, and the others are decoded",
        arguments: [
            "04 00010100 0100 00 00", "08 00010100 0101 00 00", "08 00010100 0100 00 01",
            "09 00010100 0100 00 00", "0a 00010100 0100 00",
            // Through a value that is not a collection, or not of this kind.
            "04 00010100 00 0105 00 04 00010100 014000 00 00",
            "04 00010100 00 44 00 04 00010100 014000 00 00",
            "04 00010100 00 0301 61 00 05 00010100 00 01",
        ]
    )
    func leadsNowhere(_ changes: String) throws {
        let objects = try decode(hex: "3f000156 02000101 02000102 \(changes)").all
        #expect(objects.map(\.fault) == [.path, nil])
        #expect(objects.first?.document == ["_id": "realm/V/int/1", "_key": 1])
    }

    @Test("A long changeset is read in steps, and gives what a short one gives")
    func steps() throws {
        var writer = ChangesetWriter()
        for key in 0..<40_000 as Range<Int64> { writer.create(key: key) }
        // The changes of an object need not follow its creation.
        for key in (0..<40_000 as Range<Int64>).reversed() {
            writer.instruction(0x04, key: key, field: "n", [0x01] + Writer.integer(key) + [0x00])
        }
        writer.instruction(0x03, key: 7)
        let changeset = RealmChangeset(version: 1, serverVersion: 0, bytes: writer.bytes[...])
        var decoding = RealmDecoding(changeset, derivedID: readableID)
        var steps = 1
        var found: RealmObjects?
        while true {
            found = try decoding.step()
            if found != nil { break }
            steps += 1
        }
        let objects = try #require(found)
        #expect(steps >= writer.bytes.count / (256 << 10))
        #expect(objects.count == 40_000)
        #expect(objects.all.count == 39_999)
        #expect(objects.all.allSatisfy { $0.document["n"] == $0.document["_key"] })
    }

    @Test(
        "An object whose paths make many containers, or with many changes without a value, is refused"
    )
    func manyChanges() throws {
        var writer = ChangesetWriter()
        writer.create()
        for number in 0..<3000 {
            let path = (0..<31).map { "\(number % (50 + $0))" }
            writer.instruction(0x0B, field: "f\(number)", path: path, [0x02])
        }
        #expect(try decode(writer.bytes).all.first?.fault == .tooLarge)
        writer = ChangesetWriter()
        writer.create()
        writer.update("l", [0x44])
        for _ in 0..<140_000 { writer.instruction(0x0B, field: "l", [0x01]) }
        #expect(try decode(writer.bytes).all.first?.fault == .tooLarge)
    }

    @Test("Long keys and names, which a changeset has once for many objects, refuse their object")
    func longTexts() throws {
        let long = String(repeating: "x", count: 5000)
        var writer = ChangesetWriter()
        let key = writer.name(long)
        writer.raw([0x02] + writer.name("V") + [0x03] + key)
        writer.create(key: 1)
        writer.instruction(
            0x04,
            key: 1,
            field: "l",
            [0x09] + writer.name("V") + [0x03] + key + [0x00]
        )
        writer.create(key: 2)
        writer.instruction(0x04, key: 2, field: long, [0x01, 0x01, 0x00])
        writer.create(key: 3)
        let objects = try decode(writer.bytes).all
        #expect(objects.map(\.fault) == [.longKey, .longKey, .longName, nil])
        #expect(objects.map(\.key) == [.null, .integer(1), .integer(2), .integer(3)])
    }

    @Test("Memory and time are bounded by the size of a changeset")
    func bounds() throws {
        var objects = ChangesetWriter()
        for key in 0..<200_000 as Range<Int64> { objects.create(key: key) }
        #expect(throws: RealmChangesetFault.self) { try decode(objects.bytes) }
        // Insertions at the front move everything behind them.
        var writer = ChangesetWriter()
        writer.create()
        for count in 0..<60_000 as Range<Int64> {
            writer.instruction(0x08, field: "l", path: [0], [0x01, 0x01] + Writer.integer(count))
        }
        #expect(try decode(writer.bytes).all.first?.fault == .tooManyChanges)
        // A removal from a set looks at each of its elements.
        writer = ChangesetWriter()
        writer.create()
        for number in 0..<3000 as Range<Int64> {
            writer.instruction(0x0C, field: "s", [0x01] + Writer.integer(number))
        }
        for _ in 0..<3000 { writer.instruction(0x0D, field: "s", [0x01, 0x40]) }
        #expect(try decode(writer.bytes).all.first?.fault == .tooManyChanges)
    }

    @Test("No cut and no mutation of a recorded changeset ends the process")
    func mutations() throws {
        var random = SeededGenerator(14)
        var decoded = 0
        for vector in try recorded("vectors.json") {
            let original = bytes(hex: vector["hex"]?.string ?? "")
            for end in original.indices { _ = try? decode(Array(original[..<end])) }
            for _ in 0..<400 {
                var mutated = original
                for _ in 0..<Int.random(in: 1...4, using: &random) {
                    let place = Int.random(in: mutated.indices, using: &random)
                    switch Int.random(in: 0..<4, using: &random) {
                    case 0: mutated[place] = UInt8.random(in: 0...255, using: &random)
                    case 1: mutated[place] ^= 1 << UInt8.random(in: 0..<8, using: &random)
                    case 2: mutated.insert(0xFF, at: place)
                    default: mutated.append(contentsOf: mutated[place...])
                    }
                }
                guard let objects = try? decode(mutated) else { continue }
                decoded += objects.all.count { JSONValue.object($0.document).bytes.count > 0 }
            }
        }
        #expect(decoded > 1000)
    }
}
