/// The results of a template's conditions, one bit for each. The first 64 need no allocation.
struct ConditionResults: Hashable {
    private var first: UInt64 = 0
    private var more: [UInt64]

    init(count: Int) {
        more = count > 64 ? [UInt64](repeating: 0, count: (count - 1) / 64) : []
    }

    mutating func set(_ index: Int) {
        let bit = UInt64(1) << UInt64(index % 64)
        if index < 64 { first |= bit } else { more[index / 64 - 1] |= bit }
    }

    func holds(_ index: Int) -> Bool {
        let word = index < 64 ? first : more[index / 64 - 1]
        return word & (1 << UInt64(index % 64)) != 0
    }
}

/// A cache of answers by the results of conditions, limited by weight.
///
/// There are two halves. When the younger half has half of the weight, it becomes the older one,
/// and the entries of the previous older half are evicted, unless they were used meanwhile. Only
/// the weight limits the number of answers, as an instance may choose the results of conditions.
struct AnswerCache<Value> {
    private var young: [ConditionResults: (value: Value, weight: Int)] = [:]
    private var old: [ConditionResults: (value: Value, weight: Int)] = [:]
    private(set) var youngWeight = 0
    private(set) var oldWeight = 0
    private let limit: Int

    init(limit: Int) { self.limit = limit }

    /// The weight of both halves: at most the limit, or one answer that is larger.
    var weight: Int { youngWeight + oldWeight }

    subscript(truth: ConditionResults) -> Value? {
        mutating get {
            if let known = young[truth] { return known.value }
            guard let known = old.removeValue(forKey: truth) else { return nil }
            oldWeight -= known.weight
            insert(known.value, for: truth, weight: known.weight)
            return known.value
        }
    }

    mutating func insert(_ value: Value, for truth: ConditionResults, weight: Int) {
        if youngWeight + weight > limit / 2 {
            old = young
            oldWeight = youngWeight
            young = [:]
            youngWeight = 0
        }
        young[truth] = (value, weight)
        youngWeight += weight
    }
}
