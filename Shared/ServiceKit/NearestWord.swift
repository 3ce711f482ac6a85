/// The word that was probably meant: the one that the fewest slips away from `word` (a letter too
/// many, missing, another, or two the wrong way round), where a third of its letters at most are
/// wrong, or it is the one that `word` begins. Case does not count.
///
/// - Returns: `nil` where none is near, or `word` is longer than anybody types.
package func nearestWord(to word: String, among words: some Sequence<String>) -> String? {
    let given = Array(word.lowercased().utf8)
    guard (1...100).contains(given.count) else { return nil }
    var best: (word: String, slips: Int)?
    var begun: [String] = []
    for candidate in words where candidate.utf8.count <= 100 {
        let letters = Array(candidate.lowercased().utf8)
        if letters.starts(with: given) { begun.append(candidate) }
        let count = slips(given, letters)
        if count <= max(1, max(given.count, letters.count) / 3), count < best?.slips ?? .max {
            best = (candidate, count)
        }
    }
    return best?.word ?? (begun.count == 1 && given.count >= 2 ? begun[0] : nil)
}

/// What stands behind an error: `; did you mean x?`, or nothing.
package func didYouMean(_ word: String, among words: some Sequence<String>) -> String {
    nearestWord(to: word, among: words).map { "; did you mean \($0)?" } ?? ""
}

/// Damerau's distance, of neighbours that are not touched again.
private func slips(_ a: [UInt8], _ b: [UInt8]) -> Int {
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
