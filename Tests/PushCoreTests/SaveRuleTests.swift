import JSON
import Testing

@testable import PushCore

/// Which installation a save updates, rule by rule.
@Suite
struct SaveRuleTests {
    private let token = String(repeating: "ab", count: 32)

    private func installation(_ objectID: String, _ object: JSONObject) throws -> Installation {
        var installation = Installation(app: "shop", objectID: objectID, at: .earliest)
        var object = object
        if object["deviceType"] == nil { object["deviceType"] = "ios" }
        try installation.take(object, changed: ExactStringSet(object.map(\.key)), now: .earliest)
        return installation
    }

    private func decide(
        _ rule: SaveRule,
        _ body: JSONObject,
        put objectID: String? = nil,
        among known: [Installation]
    ) throws -> SaveDecision {
        try SaveRequest(rule: rule, objectID: objectID, keys: Installation.Keys(body))
            .decide(among: known)
    }

    private func displaced(
        _ rule: SaveRule,
        by kept: Installation,
        among known: [Installation]
    ) throws -> [String: Displacement] {
        let request = SaveRequest(rule: rule, keys: .none)
        return Dictionary(
            uniqueKeysWithValues: request.displaced(by: kept, among: known)
                .map { ($0.objectID, $0.1) }
        )
    }

    private func code(_ body: () throws -> SaveDecision) -> Int? {
        do {
            _ = try body()
            return nil
        } catch {
            return (error as? InstallationError)?.code
        }
    }

    private let client = SaveRule.parse(callerInstallationID: nil, isMaster: false)

    // MARK: LeanCloud

    @Test("LeanCloud: a known token or installationId updates, and anything else creates")
    func leanCloudFindsByKeys() throws {
        let byToken = try installation("a", ["deviceToken": "aa"])
        let byID = try installation("b", ["installationId": "phone"])
        let known = [byToken, byID]
        func target(_ body: JSONObject) throws -> SaveDecision.Target {
            var body = body
            body["deviceType"] = "ios"
            return try decide(.leanCloud, body, among: known).target
        }
        #expect(try target(["deviceToken": "AA"]) == .update(objectID: "a"))
        #expect(try target(["installationId": "phone"]) == .update(objectID: "b"))
        #expect(try target(["installationId": "other"]) == .create)
        #expect(try target(["deviceToken": "bb"]) == .create)
        #expect(try target([:]) == .create)
    }

    @Test("LeanCloud: the record of a token without an id is the older one of the same device")
    func leanCloudKeepsTheOlderRecord() throws {
        let old = try installation("old", ["deviceToken": "aa"])
        let new = try installation("new", ["installationId": "phone"])
        let body: JSONObject = [
            "deviceType": "ios", "deviceToken": "aa", "installationId": "phone",
        ]
        let decision = try decide(.leanCloud, body, among: [new, old])
        #expect(decision == SaveDecision(target: .update(objectID: "old")))
        let kept = try installation("old", body)
        #expect(try displaced(.leanCloud, by: kept, among: [new, old]) == ["new": .deleted])
    }

    @Test("LeanCloud: a token named by another device's id moves, and its old record is removed")
    func leanCloudMovesTokens() throws {
        let holder = try installation("a", ["deviceToken": "aa", "installationId": "one"])
        let body: JSONObject = ["deviceType": "ios", "deviceToken": "aa", "installationId": "two"]
        #expect(try decide(.leanCloud, body, among: [holder]).target == .create)
        let kept = try installation("b", body)
        #expect(try displaced(.leanCloud, by: kept, among: [holder]) == ["a": .deleted])
        // A save by object id stays with that object, whatever token it has.
        let put = try decide(.leanCloud, ["deviceToken": "aa"], put: "b", among: [holder, kept])
        #expect(put.target == .update(objectID: "b"))
        #expect(try decide(.leanCloud, [:], put: "c", among: [holder]).target == .unknown)
    }

    @Test(
        "A token belongs to one installation per environment, and an unnamed environment matches both"
    )
    func environmentsAreApart() throws {
        func phone(_ id: String, _ environment: String?) throws -> Installation {
            var object: JSONObject = ["deviceToken": "aa"]
            if let environment { object["apnsEnvironment"] = .string(environment) }
            return try installation(id, object)
        }
        func target(
            _ environment: String?,
            _ known: Installation...
        ) throws -> SaveDecision.Target {
            var body: JSONObject = ["deviceType": "ios", "deviceToken": "aa"]
            if let environment { body["apnsEnvironment"] = .string(environment) }
            return try decide(.leanCloud, body, among: known).target
        }
        let (real, test) = (try phone("p", "production"), try phone("s", "sandbox"))
        let either = try phone("e", nil)
        #expect(try target("sandbox", real) == .create)
        #expect(try target("sandbox", real, test) == .update(objectID: "s"))
        #expect(try target("sandbox", either) == .update(objectID: "e"))
        #expect(try target(nil, test) == .update(objectID: "s"))
        #expect(try target(nil, test, real) == .update(objectID: "p"))
        #expect(try displaced(.leanCloud, by: real, among: [test]).isEmpty)
        #expect(try displaced(.leanCloud, by: either, among: [test, real]).count == 2)
    }

    // MARK: Parse

    @Test("Parse: a new object needs a token or an id, and a type unless it matches another")
    func parseNeedsKeys() throws {
        #expect(code { try decide(client, ["deviceType": "ios"], among: []) } == 135)
        #expect(code { try decide(client, ["installationId": "x"], among: []) } == 135)
        let caller = SaveRule.parse(callerInstallationID: "Phone", isMaster: false)
        #expect(try decide(caller, ["deviceType": "ios"], among: []).target == .create)
        // With the master key the caller is not a device.
        let master = SaveRule.parse(callerInstallationID: "phone", isMaster: true)
        #expect(code { try decide(master, ["deviceType": "ios"], among: []) } == 135)
        let known = try installation("a", ["installationId": "phone"])
        #expect(try decide(caller, [:], among: [known]).target == .update(objectID: "a"))
        let byToken = try installation("b", ["deviceToken": .string(token)])
        let body: JSONObject = ["deviceToken": .string(token.uppercased())]
        #expect(try decide(client, body, among: [byToken]).target == .update(objectID: "b"))
    }

    @Test("Parse: tokens of 64 characters, and installationIds, are compared without case")
    func parseFoldsCase() throws {
        let body = SaveRule.parseNormalized([
            "installationId": "ABC", "deviceToken": .string(token.uppercased()), "appName": "ABC",
        ])
        #expect(body["installationId"] == "abc")
        #expect(body["deviceToken"] == .string(token))
        #expect(body["appName"] == "ABC")
        #expect(SaveRule.parseNormalized(["deviceToken": "ABC"])["deviceToken"] == "ABC")
    }

    @Test("Parse: PUT cannot change the installation's id (136), and an unknown one is unknown")
    func parseRefusesOthers() throws {
        let named = try installation("a", ["installationId": "one", "deviceToken": "t1"])
        let bare = try installation("b", ["deviceToken": "t2"])
        func put(_ body: JSONObject, to object: Installation) -> Int? {
            code { try decide(client, body, put: object.objectID, among: [object]) }
        }
        #expect(put(["installationId": "two"], to: named) == 136)
        #expect(put(["deviceType": "android"], to: named) == 136)
        #expect(put(["deviceToken": "t9"], to: bare) == 136)
        // The token may change if either side has an id.
        #expect(put(["deviceToken": "t9"], to: named) == nil)
        #expect(put(["deviceToken": "t9", "installationId": "two"], to: bare) == nil)
        #expect(put(["deviceType": "ios", "badge": 1], to: named) == nil)
        #expect(try decide(client, [:], put: "gone", among: [named]).target == .unknown)
    }

    @Test("Parse: a known id takes the token from its old owner in the same appIdentifier")
    func parseUpdatesTheID() throws {
        let own = try installation("a", ["installationId": "one", "appIdentifier": "x"])
        let same = try installation(
            "b",
            ["installationId": "two", "deviceToken": "t", "appIdentifier": "x"]
        )
        let other = try installation(
            "c",
            [
                "installationId": "three", "deviceToken": "t", "appIdentifier": "y",
                "deviceType": "android",
            ]
        )
        let known = [own, same, other]
        let all = try decide(
            client,
            ["installationId": "one", "deviceToken": "t", "deviceType": "ios"],
            among: known
        )
        #expect(all == SaveDecision(target: .update(objectID: "a"), replaced: ["b", "c"]))
        let ofSameApp = try decide(
            client,
            ["installationId": "one", "deviceToken": "t", "appIdentifier": "x"],
            among: known
        )
        #expect(ofSameApp == SaveDecision(target: .update(objectID: "a"), replaced: ["b"]))
        // This is so only if the body itself has the id.
        let caller = SaveRule.parse(callerInstallationID: "one", isMaster: false)
        let byCaller = try decide(caller, ["deviceToken": "t"], among: known)
        #expect(byCaller == SaveDecision(target: .update(objectID: "a")))
    }

    @Test("Parse: the object of a token without an id is the same device and survives")
    func parseMergesTheOlderRecord() throws {
        let own = try installation("a", ["installationId": "one"])
        let old = try installation("b", ["deviceToken": "t"])
        let body: JSONObject = ["installationId": "ONE", "deviceToken": "t", "deviceType": "ios"]
        let merged = try decide(client, body, among: [own, old])
        #expect(merged == SaveDecision(target: .update(objectID: "b"), replaced: ["a"]))
        let third = try installation("c", ["installationId": "three", "deviceToken": "t"])
        let both = try decide(client, body, among: [own, old, third])
        #expect(both == SaveDecision(target: .update(objectID: "a"), replaced: ["b", "c"]))
        // An object does not conflict with itself.
        let put = try decide(client, ["deviceToken": "t"], put: "b", among: [old])
        #expect(put == SaveDecision(target: .update(objectID: "b")))
    }

    @Test("Parse: an unknown id takes the only object of its token, if that has no id")
    func parseTakesWhatHasNoID() throws {
        let bare = try installation("a", ["deviceToken": "t"])
        let named = try installation("b", ["deviceToken": "t", "installationId": "one"])
        let body: JSONObject = ["deviceToken": "t", "deviceType": "ios"]
        var withID = body
        withID["installationId"] = "new"
        #expect(try decide(client, withID, among: [bare]).target == .update(objectID: "a"))
        #expect(try decide(client, body, among: [named]).target == .update(objectID: "b"))
        #expect(
            try decide(client, withID, among: [named])
                == SaveDecision(target: .create, replaced: ["b"])
        )
        #expect(code { try decide(client, body, among: [bare, named]) } == 132)
        let created = try decide(client, withID, among: [bare, named])
        #expect(created == SaveDecision(target: .create, replaced: ["a", "b"]))
        withID["appIdentifier"] = "mine"
        #expect(try decide(client, withID, among: [named]).replaced == [])
    }

    @Test("Parse: a token of more objects than one phone can have is refused (132)")
    func parseRefusesCrowds() throws {
        let crowd = try (0...SaveRequest.maximumHolders).map {
            try installation("o\($0)", ["deviceType": "web", "deviceToken": "t"])
        }
        let body: JSONObject = ["deviceToken": "t", "deviceType": "web", "installationId": "new"]
        #expect(code { try decide(client, body, among: crowd) } == 132)
        #expect(try decide(client, body, among: Array(crowd.dropLast())).replaced.count == 100)
    }

    @Test("Parse: other objects stay, but a token leads to one installation only")
    func parseKeepsOneRoute() throws {
        let other = try installation("a", ["deviceToken": "cc", "installationId": "one"])
        var kept = try installation("b", ["deviceToken": "cc", "installationId": "two"])
        #expect(try displaced(client, by: kept, among: [other]) == ["a": .withoutRoute])
        kept.environment = .production
        #expect(try displaced(client, by: kept, among: [other]) == ["a": .withoutRoute])
    }

    @Test("Parse: PUT by a caller whose id is known goes to the caller's own object")
    func parsePutsToTheCaller() throws {
        let own = try installation("a", ["installationId": "one"])
        let other = try installation("b", ["installationId": "two"])
        let caller = SaveRule.parse(callerInstallationID: "ONE", isMaster: false)
        let master = SaveRule.parse(callerInstallationID: "one", isMaster: true)
        let stranger = SaveRule.parse(callerInstallationID: "three", isMaster: false)
        for (rule, target) in [(caller, "a"), (master, "b"), (stranger, "b")] {
            let decision = try decide(rule, ["badge": 1], put: "b", among: [own, other])
            #expect(decision.target == .update(objectID: target))
        }
    }

    // MARK: Azure

    @Test("Azure: only the id selects, and a channel leaves its old installation")
    func azureFindsByID() throws {
        let named = try installation("a", ["installationId": "one", "deviceToken": "aa"])
        let bare = try installation("b", ["deviceToken": "bb"])
        let known = [named, bare]
        let body: JSONObject = ["deviceType": "ios", "installationId": "two", "deviceToken": "aa"]
        #expect(try decide(.azure, body, among: known).target == .create)
        let again: JSONObject = ["deviceType": "ios", "installationId": "one"]
        #expect(try decide(.azure, again, among: known).target == .update(objectID: "a"))
        let moved = try installation("c", body)
        #expect(try displaced(.azure, by: moved, among: known) == ["a": .withoutRoute])
        let taken = try installation("c", ["installationId": "two", "deviceToken": "bb"])
        #expect(try displaced(.azure, by: taken, among: known) == ["b": .deleted])
    }

    @Test(
        "An installation for template sends only shares its token in both directions"
    )
    func templatesShareTokens() throws {
        var template = try installation("t", ["deviceToken": "aa", "installationId": "1-2-1"])
        template.isTemplateOnly = true
        let phone = try installation("p", ["deviceToken": "aa", "installationId": "phone"])
        for rule in [SaveRule.leanCloud, client, .azure] {
            #expect(try displaced(rule, by: phone, among: [template]) == [:])
            #expect(try displaced(rule, by: template, among: [phone]) == [:])
        }
        let body: JSONObject = ["deviceType": "ios", "deviceToken": "aa"]
        #expect(try decide(.leanCloud, body, among: [template]).target == .create)
        #expect(try decide(client, body, among: [template]).target == .create)
    }

    @Test("A lost route comes back only when the device names it again")
    func lostRoutesStayLost() throws {
        var lost = try installation("a", ["deviceToken": "aa", "badge": 1])
        (lost.platform, lost.token) = (nil, nil)
        try lost.take(lost.object, changed: ["badge"], now: .earliest)
        #expect(lost.token == nil)
        #expect(lost.object["deviceToken"] == "aa")
        try lost.take(lost.object, changed: ["deviceToken"], now: .earliest)
        #expect(lost.token == "aa")
    }

    @Test("Any save revives a silent device, a muted one stays muted, and a dead token stays dead")
    func openingRevives() throws {
        var phone = try installation("a", ["deviceToken": "aa"])
        (phone.isValid, phone.invalidReason) = (false, Installation.inactiveReason)
        try phone.take(phone.object, changed: ["badge"], now: .earliest)
        #expect(phone.isValid && phone.invalidReason == nil)

        (phone.isValid, phone.invalidReason) = (false, nil)
        try phone.take(phone.object, changed: ["badge"], now: .earliest)
        #expect(!phone.isValid)

        (phone.isValid, phone.invalidReason) = (false, "Unregistered")
        try phone.take(phone.object, changed: ["badge"], now: .earliest)
        #expect(!phone.isValid)
        try phone.take(phone.object, changed: ["deviceToken"], now: .earliest)
        #expect(phone.isValid)

        (phone.isValid, phone.invalidReason) = (false, Installation.inactiveReason)
        var object = phone.object
        object["valid"] = false
        try phone.take(object, changed: ["valid"], now: .earliest)
        #expect(!phone.isValid && phone.invalidReason == nil)
    }
}
