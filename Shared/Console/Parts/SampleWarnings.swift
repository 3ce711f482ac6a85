import InstallationStorage
import JSON
import PushCore

/// Warnings about the texts of a push, from a look at some devices of its audience: placeholders without
/// a value, and languages without a text.
struct SampleWarnings {
    let sample: AudienceSample
    let request: PushRequest
    let t: Words

    /// In percent of the devices.
    private static let missingShare = 40
    private static let languageShare = 33
    private static let namedLanguages = 3

    var sentences: [String] {
        guard sample.devices > 0 else { return [] }
        return placeholders + [languages].compactMap { $0 }
    }

    private func isAtLeast(_ percent: Int, _ count: Int) -> Bool {
        count * 100 >= percent * sample.devices
    }

    private func share(_ count: Int) -> String { t.share(count, of: sample.devices) }

    // MARK: Placeholders

    private var placeholders: [String] {
        var fallbacks: [String: String] = [:]
        _ = PushTemplate.replacing(request.data ?? [:]) { placeholder in
            if fallbacks[placeholder.field, default: ""].isEmpty {
                fallbacks[placeholder.field] = placeholder.fallback
            }
            return ""
        }
        return request.templateFields.compactMap { field in
            let missing = sample.missing[field] ?? 0
            guard isAtLeast(Self.missingShare, missing) else { return nil }
            let fallback = fallbacks[field] ?? ""
            if missing == sample.devices {
                return t(
                    "No device that was looked at has a value for {field}. Compare the name with the app's fields.",
                    ["field": "{{\(field)}}"]
                )
            }
            let values: KeyValuePairs<String, String> = [
                "share": share(missing), "count": t.number(sample.devices),
                "field": "{{\(field)}}", "fallback": fallback,
            ]
            return fallback.isEmpty
                ? t(
                    "{share} of {count} devices have no value for {field}: nothing is shown in its place.",
                    values
                )
                : t(
                    "{share} of {count} devices have no value for {field}: they get “{fallback}”.",
                    values
                )
        }
    }

    // MARK: Languages

    private var languages: String? {
        let variants = LocaleVariants(request.data)
        var others: [String: Int] = [:]
        for (locale, count) in sample.locales where !locale.isEmpty {
            guard variants.choose(for: locale) == nil else { continue }
            others[Self.language(of: locale), default: 0] += count
        }
        if variants.isEmpty, let main = Self.byCount(others).first { others[main] = nil }
        let count = others.values.reduce(0, +)
        guard count > 0, isAtLeast(Self.languageShare, count) else { return nil }
        let named = Self.byCount(others).prefix(Self.namedLanguages).joined(separator: ", ")
        let values: KeyValuePairs<String, String> = [
            "share": share(count), "count": t.number(sample.devices), "languages": named,
        ]
        return variants.isEmpty
            ? t(
                "The text has one language, but {share} of {count} devices have another one than most: {languages}. They get the same text.",
                values
            )
            : t(
                "{share} of {count} devices have a language without a text of its own: {languages}. They get the main text.",
                values
            )
    }

    /// The first subtag of a locale: `pt` of `pt_BR`.
    private static func language(of locale: String) -> String {
        String(locale.prefix { $0 != "-" && $0 != "_" && $0 != "@" && $0 != "." }.prefix(16))
            .lowercased()
    }

    private static func byCount(_ languages: [String: Int]) -> [String] {
        languages.sorted { ($1.value, $0.key) < ($0.value, $1.key) }.map(\.key)
    }
}
