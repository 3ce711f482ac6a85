package import JSON

/// The localized variants of a push: Parse's `alert-<locale>` and `title-<locale>`, at the top of
/// `data` and in a platform's own object.
///
/// A device gets the variant whose locale is a prefix of its own, subtag by subtag: for `fr-CA` it
/// is `alert-fr-CA`, else `alert-fr`, else the plain `alert`. Case is ignored, and `_` is `-`. Keys
/// such as `title-img` contain no language: they are keys of the app.
package struct LocaleVariants: Sendable, Equatable {
    /// A localized key of `data`.
    package struct Variant: Equatable {
        /// `alert` or `title`.
        package let base: String
        /// The locale in its canonical form.
        package let locale: String
        /// Whether the key may also be a key of the app: `alert-id`, `title-no`.
        package let isDoubtful: Bool
    }

    /// The locales in their canonical form, those with more subtags first.
    package let locales: [String]

    package init(_ data: JSONObject?) {
        var found: Set<String> = []
        var doubtful: [(locale: String, value: JSONValue)] = []
        func note(_ key: String, _ value: JSONValue) {
            guard let variant = Self.variant(key) else { return }
            if variant.isDoubtful {
                doubtful.append((variant.locale, value))
            } else {
                found.insert(variant.locale)
            }
        }
        for (key, value) in data ?? [:] {
            note(key, value)
            for (key, value) in value.object ?? [:] { note(key, value) }
        }
        let hasLanguages = !found.isEmpty
        for (locale, value) in doubtful where hasLanguages || Self.isSentence(value) {
            found.insert(locale)
        }
        locales = found.sorted { ($0.utf8.count, $0) > ($1.utf8.count, $1) }
    }

    package var isEmpty: Bool { locales.isEmpty }

    /// Returns the longest locale of the push that is a prefix of the device's locale. It selects
    /// all texts, so devices with the same result share their payload.
    package func choose(for locale: String?) -> String? {
        guard let locale, !locales.isEmpty else { return nil }
        let canonical = Self.canonical(locale)
        return locales.first { Self.begins(canonical, with: $0) }
    }

    /// Splits a localized key of this push; `nil` for a key of the app.
    package func variant(_ key: String) -> Variant? {
        guard let variant = Self.variant(key) else { return nil }
        return variant.isDoubtful && !locales.contains(variant.locale) ? nil : variant
    }

    /// Whether a device of `locale` gets the texts of `variant`; both are in canonical form.
    package static func begins(_ locale: String, with variant: String) -> Bool {
        locale == variant || locale.hasPrefix(variant + "-")
    }

    /// Splits a key of `data` that may be localized; `nil` for every other key.
    package static func variant(_ key: String) -> Variant? {
        let bytes = key.utf8
        guard let dash = bytes.index(bytes.startIndex, offsetBy: 5, limitedBy: bytes.endIndex),
            dash < bytes.endIndex, bytes[dash] == UInt8(ascii: "-")
        else { return nil }
        let base = String(key[..<dash])
        guard base == "alert" || base == "title" else { return nil }
        let locale = key[bytes.index(after: dash)...]
        let parts = locale.lowercased().split(
            omittingEmptySubsequences: false,
            whereSeparator: { $0 == "-" || $0 == "_" }
        )
        guard let language = parts.first, parts.count <= 4, languages.contains(String(language)),
            parts.dropFirst().allSatisfy({ isSubtag($0, of: language) })
        else { return nil }
        let isDoubtful = parts.count == 1 && words.contains(String(language))
        return Variant(base: base, locale: canonical(locale), isDoubtful: isDoubtful)
    }

    /// Whether the part is a script, a region or a variant of BCP 47, or a language of Chinese.
    private static func isSubtag(_ part: Substring, of language: Substring) -> Bool {
        let bytes = part.utf8
        guard bytes.allSatisfy({ ASCII.isAlphanumeric($0) }) else { return false }
        let isLetters = bytes.allSatisfy { ASCII.isLetter($0) }
        return switch bytes.count {
        case 2: isLetters
        case 3: isLetters ? language == "zh" : bytes.allSatisfy { !ASCII.isLetter($0) }
        case 4: isLetters || bytes.first.map { !ASCII.isLetter($0) } ?? false
        case 5...8: true
        default: false
        }
    }

    /// Languages whose code is also a word that apps use in keys.
    private static let words: Set<String> = ["id", "no", "to"]

    /// Whether the value is more than an identifier.
    private static func isSentence(_ value: JSONValue) -> Bool {
        value.object != nil || value.string?.utf8.contains(UInt8(ascii: " ")) == true
    }

    /// The two-letter languages of ISO 639, with the older codes of three of them, and the
    /// three-letter languages that have locales in CLDR.
    private static let languages = Set(
        """
        aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da \
        de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz \
        ia id ie ig ii ik in io is it iu iw ja ji jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb \
        lg li ln lo lt lu lv mg mh mi mk ml mn mo mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om \
        or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw \
        ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu \
        agq arn asa ast bas bem bez bho brx byn ceb cgg chr ckb csw dav dje doi dsb dua dyo ebu ewo fil \
        fur gaa gsw guz haw hmn hsb hrx jgo jmc kab kaj kam kde kea kgp khq kln kok ksb ksf ksh lag lkt \
        lrc luo luy mai mas mer mfe mgh mgo mni moh mua mus mzn naq nds nmg nnh nqo nso nus nyn pcm prg \
        quc rof rwk sah saq sat sbp seh ses shi sma smj smn sms sma syr szl teo tig trv twq tzm vai vec \
        vmw vun wae wal xog yav yue yrl zgh
        """.split(separator: " ").map(String.init)
    )

    /// Returns the canonical form: `fr_CA@calendar=gregorian` and `fr-ca` are equal.
    private static func canonical(_ locale: some StringProtocol) -> String {
        let plain = locale.prefix { $0 != "@" && $0 != "." }
        return plain.lowercased().split(
            omittingEmptySubsequences: false,
            whereSeparator: { $0 == "_" }
        ).joined(separator: "-")
    }
}
