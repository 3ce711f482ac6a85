package import JSON

/// The languages that a push speaks beside its plain texts: Parse's `alert-<locale>` and
/// `title-<locale>`, at the top of `data` and in a platform's own object.
///
/// A device gets the variant whose locale its own begins with, part by part: `fr-CA` hears
/// `alert-fr-CA`, else `alert-fr`, else the plain `alert`. Case does not count, and `_` is `-`.
package struct LocaleVariants: Sendable, Equatable {
    /// In their canonical form, those of more parts first.
    package let locales: [String]

    package init(_ data: JSONObject?) {
        var found: Set<String> = []
        for (key, value) in data ?? [:] {
            if let variant = Self.variant(key) { found.insert(variant.locale) }
            for key in value.object?.keys ?? [] {
                if let variant = Self.variant(key) { found.insert(variant.locale) }
            }
        }
        locales = found.sorted { ($0.utf8.count, $0) > ($1.utf8.count, $1) }
    }

    package var isEmpty: Bool { locales.isEmpty }

    /// The longest locale of the push that a device's own begins with: it decides every text, so
    /// devices that share it share their payload.
    package func choose(for locale: String?) -> String? {
        guard let locale, !locales.isEmpty else { return nil }
        let canonical = Self.canonical(locale)
        return locales.first { Self.begins(canonical, with: $0) }
    }

    /// Whether a device of `locale` takes the text for `variant`; both in their canonical form.
    package static func begins(_ locale: String, with variant: String) -> Bool {
        locale == variant || locale.hasPrefix(variant + "-")
    }

    /// What a key of `data` is a variant of, and for whom; `nil` for every other key.
    package static func variant(_ key: String) -> (base: String, locale: String)? {
        guard let dash = key.firstIndex(of: "-") else { return nil }
        let base = String(key[..<dash])
        guard base == "alert" || base == "title" else { return nil }
        let locale = key[key.index(after: dash)...]
        let parts = locale.split(
            omittingEmptySubsequences: false,
            whereSeparator: { $0 == "-" || $0 == "_" }
        )
        // A language of ISO 639, then script, region and variants as BCP 47 writes them: what is
        // longer, as in `alert-type`, is an app's own key.
        let isLocale =
            parts.count <= 4 && (2...3).contains(parts[0].utf8.count)
            && parts[0].utf8.allSatisfy(ASCII.isLetter)
            && parts.dropFirst().allSatisfy { part in
                (2...8).contains(part.utf8.count) && part.utf8.allSatisfy(ASCII.isAlphanumeric)
            }
        return isLocale ? (base, canonical(locale)) : nil
    }

    /// `fr_CA@calendar=gregorian` and `fr-ca` are one.
    private static func canonical(_ locale: some StringProtocol) -> String {
        let plain = locale.prefix { $0 != "@" && $0 != "." }
        return plain.lowercased().split(
            omittingEmptySubsequences: false,
            whereSeparator: { $0 == "_" }
        ).joined(separator: "-")
    }
}
