internal import CPCRE2

/// A pattern in the dialect of RE2, compiled once.
///
/// Authority: PCRE2 matches; this room decides what it is given. A pattern is read by
/// `PatternTranslator` first, which takes what RE2 has and writes it anew in PCRE2's words, so that
/// nothing that only PCRE2 knows (look-around, references back, recursion, verbs) ever reaches it,
/// and what both know means what RE2 says. Whether a text holds a match is asked of a
/// `RegularExpressionMatcher`, which counts steps. Immutable; nothing to shut down.
///
/// RE2 itself was measured and not taken: its time is program times text and cannot be interrupted
/// (`.{1000}` over 64 KB: 460 ms), and a counted class of Unicode's letters takes 8 MB and 28 ms to
/// compile (`[\\pL\\pN]{1,64}`: 86,000 instructions; 3 µs here).
package final class RegularExpression: Sendable {
    /// The longest pattern that is taken, in bytes.
    package static let maximumPatternBytes = 4096

    /// How many characters the classes of one pattern may cover where case is ignored: PCRE2 looks
    /// up the other case of each, at 2 ns a character. 10 ms.
    package static let maximumFoldedCharacters = 4_500_000

    /// As it was given.
    package let pattern: String
    /// How many characters are folded when it is compiled; see `maximumFoldedCharacters`.
    package let foldedCharacters: Int
    /// The most that one byte of a text costs when the pattern is searched once through it, in steps:
    /// more than 1 for a large class beyond U+00FF, whose members are compared one by one.
    package let stepsPerByte: Int
    /// What an item costs beside that, by its place in the translated pattern, as a power of 2; empty
    /// where none costs more than one step.
    let itemCosts: [UInt8]
    let code: CompiledPattern

    /// The memory that it takes, in bytes: a short pattern may repeat a long one many times.
    package var weightBytes: Int { code.weightBytes + itemCosts.count }

    /// Reads and compiles a pattern.
    ///
    /// - Parameters:
    ///   - pattern: In RE2's dialect.
    ///   - isStored: It was accepted before: one that takes too long to compile is none that matches,
    ///     instead of an error.
    /// - Throws: `RegularExpressionError` for what RE2 would refuse, and for what is larger than is
    ///   taken here.
    package init(
        _ pattern: String,
        isStored: Bool = false
    ) throws(RegularExpressionError) {
        guard pattern.utf8.count <= Self.maximumPatternBytes else {
            throw RegularExpressionError("longer than \(Self.maximumPatternBytes) bytes")
        }
        self.pattern = pattern
        let translated = try PatternTranslator.translate(pattern)
        foldedCharacters = translated.foldedCharacters
        stepsPerByte = translated.stepsPerByte
        itemCosts = translated.itemCosts
        if foldedCharacters <= Self.maximumFoldedCharacters {
            code = try CompiledPattern(translated.bytes)
        } else if isStored {
            code = CompiledPattern()
        } else {
            throw RegularExpressionError(
                "(?i) applies to classes of \(foldedCharacters) characters, which takes too long;"
                    + " at most \(Self.maximumFoldedCharacters) together"
            )
        }
    }
}

/// Why a text is no pattern that we take. Safe to show: it holds nothing of the text.
package struct RegularExpressionError: Error, Equatable, Sendable, CustomStringConvertible {
    package let description: String

    init(_ description: String) { self.description = description }
}

/// Sole owner of one `pcre2_code`. PCRE2 only reads it after it is compiled, so threads share it.
@safe
struct CompiledPattern: ~Copyable, @unchecked Sendable {
    /// `nil`: it takes too long to compile, and each search takes too long.
    let pointer: OpaquePointer?
    let weightBytes: Int

    /// One that is not compiled.
    init() {
        unsafe pointer = nil
        weightBytes = 0
    }

    /// Compiles what the translator wrote, with a callout before each item, by which the matcher
    /// counts.
    init(_ pattern: [UInt8]) throws(RegularExpressionError) {
        var code: Int32 = 0
        var place = 0
        let options =
            PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_CIRCUMFLEX
            | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT
        let context = CompileContext()
        let compiled = unsafe pattern.withUnsafeBufferPointer { bytes in
            unsafe pcre2_compile_8(
                bytes.baseAddress,
                bytes.count,
                UInt32(options),
                &code,
                &place,
                context.pointer
            )
        }
        guard let compiled = unsafe compiled else {
            throw RegularExpressionError(Self.reason(code))
        }
        unsafe pointer = compiled
        var size = 0
        unsafe pcre2_pattern_info_8(compiled, UInt32(PCRE2_INFO_SIZE), &size)
        weightBytes = size + pattern.count
    }

    deinit { unsafe pcre2_code_free_8(pointer) }

    private static func reason(_ code: Int32) -> String {
        var text = [UInt8](repeating: 0, count: 128)
        let count = unsafe pcre2_get_error_message_8(code, &text, text.count)
        return count > 0 ? String(decoding: text.prefix(Int(count)), as: UTF8.self) : "not taken"
    }
}

/// Sole owner of one `pcre2_compile_context`: a line ends with LF alone, as RE2 has it.
@safe
private struct CompileContext: ~Copyable {
    let pointer: OpaquePointer

    init() {
        guard let pointer = unsafe pcre2_compile_context_create_8(nil) else {
            fatalError("out of memory")
        }
        unsafe self.pointer = pointer
        unsafe pcre2_set_newline_8(pointer, UInt32(PCRE2_NEWLINE_LF))
        unsafe pcre2_set_parens_nest_limit_8(
            pointer,
            UInt32(PatternTranslator.maximumDepth + 1)
        )
    }

    deinit { unsafe pcre2_compile_context_free_8(pointer) }
}
