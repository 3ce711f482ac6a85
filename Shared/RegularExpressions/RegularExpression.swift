internal import CPCRE2

/// A pattern in the dialect of RE2, compiled once.
///
/// Authority: PCRE2 matches; this module decides what it gets. `PatternTranslator` parses a pattern
/// first: it accepts RE2's syntax and writes it in PCRE2's, so that PCRE2's own constructs
/// (look-around, backreferences, recursion, verbs) never reach it, and common ones have RE2's
/// meaning. A `RegularExpressionMatcher`, which counts steps, searches strings. Immutable; nothing
/// to shut down.
///
/// RE2 itself was measured and rejected: its time is program times text and cannot be interrupted
/// (`.{1000}` over 64 KB: 460 ms), and a counted class of Unicode's letters takes 8 MB and 28 ms to
/// compile (`[\\pL\\pN]{1,64}`: 86,000 instructions; 3 µs here).
package final class RegularExpression: Sendable {
    /// The longest accepted pattern, in bytes.
    package static let maximumPatternBytes = 4096

    /// The most characters that the classes of one pattern may cover if case is ignored: PCRE2
    /// looks up the other case of each, at 2 ns a character. 10 ms.
    package static let maximumFoldedCharacters = 4_500_000

    /// The pattern as given.
    package let pattern: String
    /// The number of characters that are folded when it is compiled; see `maximumFoldedCharacters`.
    package let foldedCharacters: Int
    /// The highest cost of one byte of a string when the pattern is searched once through it, in
    /// steps: more than 1 for a large class beyond U+00FF, whose members are compared one by one.
    package let stepsPerByte: Int
    /// The additional cost of an item, by its place in the translated pattern, as a power of 2;
    /// empty if each costs at most one step.
    let itemCosts: [UInt8]
    let code: CompiledPattern

    /// The memory that it takes, in bytes: a short pattern may repeat a long one many times.
    package var weightBytes: Int { code.weightBytes + itemCosts.count }

    /// Parses and compiles a pattern.
    ///
    /// - Parameters:
    ///   - pattern: In RE2's dialect.
    ///   - isStored: Whether it was accepted before: one that takes too long to compile then never
    ///     matches, instead of an error.
    /// - Throws: `RegularExpressionError` if RE2 would refuse it, or it exceeds our limits.
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

/// Why a pattern is not accepted. Safe to show: it contains nothing of the pattern.
package struct RegularExpressionError: Error, Equatable, Sendable, CustomStringConvertible {
    package let description: String

    init(_ description: String) { self.description = description }
}

/// Sole owner of one `pcre2_code`. PCRE2 only reads it after it is compiled, so threads share it.
@safe
struct CompiledPattern: ~Copyable, @unchecked Sendable {
    /// `nil`: it takes too long to compile, and each search ends as too long.
    let pointer: OpaquePointer?
    let weightBytes: Int

    /// Makes an uncompiled pattern.
    init() {
        unsafe pointer = nil
        weightBytes = 0
    }

    /// Compiles the translator's output, with a callout before each item, by which the matcher
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

/// Sole owner of one `pcre2_compile_context`: a line ends with LF alone, as in RE2.
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
