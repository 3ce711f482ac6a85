import Cryptography
import DeadLetters
import JSON
import Kafka
import PushEvents

/// The parts of the pages of dead letters.
struct DeadLetterParts {
    let visit: Visit
    let topic: String

    var t: Words { visit.t }

    /// The longest value that can be edited on a page. A form's escapes make it up to three times as
    /// long.
    static let maximumEdited = 64 << 10
    /// The longest value that is shown.
    private static let maximumShown = 64 << 10
    private static let maximumBinary = 512
    private static let maximumHeaders = 50

    // MARK: Addresses

    /// `<topic>-<partition>-<offset>`.
    func name(of letter: StoredDeadLetter) -> String {
        "\(topic)-\(letter.id.partition)-\(letter.id.offset)"
    }

    /// Reads a name of the form that `name` makes.
    func id(_ name: String) -> StoredDeadLetter.ID? {
        guard name.hasPrefix(topic + "-") else { return nil }
        let place = name.utf8.dropFirst(topic.utf8.count + 1)
        return StoredDeadLetter.ID(String(Substring(place)).replacing("-", with: "/"))
    }

    func address(of letter: StoredDeadLetter) -> Address {
        visit.address("dead-letters", name(of: letter))
    }

    var crumbs: [(text: String, address: Address)] {
        [(t("Dead letters"), visit.address("dead-letters"))]
    }

    // MARK: Texts

    /// The reason in a sentence.
    func sentence(_ reason: String) -> String {
        switch DeadLetterReason.Reason(rawValue: reason) {
        case .emptyValue: t("The record has no value.")
        case .invalidJSON: t("The value is not JSON.")
        case .notAnObject: t("The value is not a JSON object.")
        case .invalidCloudEvent: t("The record is not a valid CloudEvent.")
        case .missingApp: t("The record names no app.")
        case .unknownApp: t("The record names an app that did not exist.")
        case .unknownPool: t("No app was linked to the identity pool.")
        case .unknownType: t("The app had no type of this name.")
        case .invalidID: t("The id of the object is invalid.")
        case .invalidRequest: t("A field of the request is invalid.")
        case .tooLarge: t("The content is too large for every platform.")
        case .notStorable: t("The database cannot store a value of the record.")
        case nil: t("This version does not know the reason.")
        }
    }

    /// Why a record cannot be replayed.
    func sentence(_ obstacle: StoredDeadLetter.Obstacle) -> String {
        switch obstacle {
        case .omitted: t("Its content was too large to be stored.")
        case .noValue: t("The record has no value.")
        case .noApp: t("The record names no app.")
        case .notJSON: t("The value is not JSON.")
        case .unknownRoute, .unknownTopic: t("It came from an unknown place.")
        }
    }

    // MARK: Content

    /// The place from which the record came.
    func place(of letter: StoredDeadLetter) -> HTML {
        let place = letter.sourcePlace.map { " \($0)" } ?? ""
        return Part.own(Self.cut(letter.source + place, 120))
    }

    func facts(of letter: StoredDeadLetter) -> HTML {
        var list = KeyValues()
        list.add(t("Reason"), Part.code(Self.cut(letter.reason, 64)))
        list.add(t("Detail"), Part.own(Self.cut(letter.detail, 2000)))
        list.add(t("From"), place(of: letter))
        list.add(t("Written (UTC)"), letter.at.map(t.time))
        list.add(t("Dead letter"), Part.code(letter.id.text))
        list.add(t("Bytes"), text: t.number(letter.size))
        return list.html
    }

    /// Key and value, for people who may see them.
    func content(of letter: StoredDeadLetter) -> HTML {
        guard let value = letter.record.value else {
            return "<p>\(t("The record has no value."))</p>"
        }
        guard let text = String(validating: value, as: UTF8.self) else {
            let bytes = t.count(
                value.count,
                one: "{count} byte that is not text. The beginning, in hexadecimal:",
                other: "{count} bytes that are not text. The beginning, in hexadecimal:"
            )
            let shown = Hex.encode(Array(value.prefix(Self.maximumBinary)))
            return "<p>\(bytes)</p>\(Part.block(shown, id: "content", t))"
        }
        let block = Part.block(Self.cut(text, Self.maximumShown), id: "content", t)
        guard value.count > Self.maximumShown else { return block }
        return "\(block)<p class=\"hint\">\(t("Only the beginning is shown."))</p>"
    }

    func headers(of letter: StoredDeadLetter) -> HTML {
        var list = KeyValues()
        list.add(t("Key"), letter.record.key.map(Self.shown))
        for header in letter.ownHeaders.prefix(Self.maximumHeaders) {
            list.items.append((Self.cut(header.name, 100), Self.shown(header.value)))
        }
        return list.items.isEmpty
            ? "<p>\(t("The record has no key and no header."))</p>" : list.html
    }

    private static func shown(_ bytes: [UInt8]) -> HTML {
        guard let text = String(validating: bytes.prefix(2000), as: UTF8.self) else {
            return Part.code("0x" + Hex.encode(Array(bytes.prefix(64))))
        }
        return Part.own(cut(text, 500))
    }

    /// Cuts a text after so many characters.
    static func cut(_ text: String, _ most: Int) -> String {
        // Counting all characters of a long text would take longer than cutting it.
        guard text.utf8.count > most else { return text }
        let start = text.prefix(most)
        return start.endIndex == text.endIndex ? text : start + "…"
    }

    /// The record's value for the editor; `nil` if it cannot be edited there.
    static func editable(_ letter: StoredDeadLetter) -> String? {
        guard let value = letter.record.value, value.count <= maximumEdited,
            !value.contains(0)
        else { return nil }
        return String(validating: value, as: UTF8.self)
    }

    /// Returns a form's value, if it differs from the record's by more than line ends, as browsers
    /// write them.
    static func edited(_ form: Form, _ letter: StoredDeadLetter) -> [UInt8]? {
        guard let typed = form["value"], let own = editable(letter) else { return nil }
        let (new, old) = (typed.replacing("\r\n", with: "\n"), own.replacing("\r\n", with: "\n"))
        return new.isSame(as: old) ? nil : Array(new.utf8)
    }
}
