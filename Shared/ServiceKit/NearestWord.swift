/// Returns the word that was probably meant: the one with the fewest mistypedArguments from `word` (an extra,
/// missing or wrong letter, or two swapped), if at most a third of its letters are wrong, or the
/// one that `word` begins. Case does not count.
///
/// - Returns: `nil` if none is near, or `word` is longer than anyone types.
package func nearestWord(to word: String, among words: some Sequence<String>) -> String? {
    let given = Array(word.lowercased().utf8)
    guard (1...100).contains(given.count) else { return nil }
    var best: (word: String, mistypedArguments: Int)?
    var begun: [String] = []
    for candidate in words where candidate.utf8.count <= 100 {
        let letters = Array(candidate.lowercased().utf8)
        if letters.starts(with: given) { begun.append(candidate) }
        let count = mistypedArguments(given, letters)
        if count <= max(1, max(given.count, letters.count) / 3),
            count < best?.mistypedArguments ?? .max
        {
            best = (candidate, count)
        }
    }
    return best?.word ?? (begun.count == 1 && given.count >= 2 ? begun[0] : nil)
}

/// Returns the suffix of an error message: `; did you mean x?`, or nothing.
package func didYouMean(_ word: String, among words: some Sequence<String>) -> String {
    nearestWord(to: word, among: words).map { "; did you mean \($0)?" } ?? ""
}

/// Returns Damerau's distance, with swaps of neighbours that are not edited again.
private func mistypedArguments(_ a: [UInt8], _ b: [UInt8]) -> Int {
    var twoBack = [Int](repeating: 0, count: b.count + 1)
    var last = Array(0...b.count)
    for row in a.indices {
        var next = [row + 1]
        for column in b.indices {
            let other = a[row] == b[column] ? 0 : 1
            var count = min(last[column] + other, last[column + 1] + 1, next[column] + 1)
            if row > 0, column > 0, a[row] == b[column - 1], a[row - 1] == b[column] {
                count = min(count, twoBack[column - 1] + 1)
            }
            next.append(count)
        }
        (twoBack, last) = (last, next)
    }
    return last[b.count]
}
