import JSON

/// A language of the console.
enum Language: String, Sendable, CaseIterable {
    case english = "en"
    case chinese = "zh-Hans"
    case portuguese = "pt-BR"

    /// Its name in itself.
    var name: String {
        switch self {
        case .english: "English"
        case .chinese: "中文"
        case .portuguese: "Português"
        }
    }

    /// Chooses by a browser's `Accept-Language`: the supported language with the highest weight, the
    /// first of equal ones; English if there is none.
    init(accepting header: String?) {
        var best: (language: Language, weight: Double)?
        for item in (header ?? "").prefix(1000).split(separator: ",") {
            let parts = item.split(separator: ";").map { $0.trimmingBlanks }
            guard let tag = parts.first, let language = Language(tag: tag) else { continue }
            let given = parts.dropFirst().first { $0.hasPrefix("q=") }.map { $0.dropFirst(2) }
            let weight = given.map { Double($0) ?? 0 } ?? 1
            if weight > best?.weight ?? 0 { best = (language, weight) }
        }
        self = best?.language ?? .english
    }

    private init?(tag: some StringProtocol) {
        switch tag.prefix(while: { $0 != "-" }).lowercased() {
        case "en": self = .english
        case "zh": self = .chinese
        case "pt": self = .portuguese
        default: return nil
        }
    }

    /// The words of each language by their English text: a text, or `[one, other]` for a text with a
    /// count. They are stored as JSON texts: a literal of a text costs the compiler nothing.
    static let tables: [Language: [String: [String]]] = [
        .chinese: table(chineseWords),
        .portuguese: table(portugueseWords),
    ]

    private static func table(_ text: String) -> [String: [String]] {
        guard let object = (try? JSONValue.parse(Array(text.utf8)))?.object else {
            preconditionFailure("a table of words in the build is no JSON object")
        }
        var words: [String: [String]] = [:]
        for (key, value) in object {
            words[key] = value.string.map { [$0] } ?? value.array?.compactMap(\.string)
        }
        return words
    }
}

extension Substring {
    fileprivate var trimmingBlanks: Substring {
        var text = self.drop { $0 == " " }
        while text.last == " " { text.removeLast() }
        return text
    }
}
