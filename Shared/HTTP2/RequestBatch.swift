internal import CNGHTTP2
internal import Glibc

extension HTTP2 {
    /// Requests that are sent together, in one block of memory, from which libnghttp2 reads them:
    /// no request has a string or a body of its own. Once a request is submitted, no further
    /// request may be added.
    ///
    /// Built by one thread, then read by the thread that submits.
    @safe
    package final class RequestBatch: @unchecked Sendable {
        private let requests: UnsafeMutablePointer<RequestRecords>

        /// - Parameters:
        ///   - count: The expected number of requests.
        ///   - bytes: The expected size of their strings and bodies.
        package init(count: Int = 16, bytes: Int = 4096) {
            unsafe requests = .allocate(capacity: 1)
            unsafe requests.initialize(
                to: RequestRecords(items: max(1, count), bytes: max(1, bytes))
            )
        }

        deinit {
            unsafe requests.pointee.free()
            unsafe requests.deinitialize(count: 1)
            unsafe requests.deallocate()
        }

        package var count: Int { unsafe requests.pointee.count }

        /// - Parameters:
        ///   - template: The part that the request shares with others.
        ///   - path: With its query, in two parts that are concatenated.
        ///   - value: The value of the template's first varying field, if any.
        ///   - values: The values of the other varying fields.
        ///   - body: Copied, unless it is the previous request's array.
        package func add(
            _ template: RequestTemplate,
            path: (String, String),
            value: String?,
            values: [String],
            body: [UInt8]
        ) {
            unsafe requests.pointee.add(template, path, value, values, body)
        }

        /// Returns a request; from now on its memory does not move.
        func fixed(_ index: Int) -> RequestRecords.Item { unsafe requests.pointee.fixed(index) }

        func body(of item: RequestRecords.Item) -> UnsafeMutablePointer<UInt8> {
            unsafe requests.pointee.body(of: item)
        }

        /// Points the pairs of a valid request, which its template has filled, to its strings.
        func point(
            _ pairs: UnsafeMutablePointer<nghttp2_nv>,
            of item: RequestRecords.Item,
            first: Int,
            end: Int
        ) {
            unsafe requests.pointee.point(pairs, of: item, first: first, end: end)
        }
    }
}

/// The memory of a batch, at a fixed address.
@safe
struct RequestRecords {
    @safe
    struct Item {
        /// Retained by `templates`.
        let template: Unmanaged<HTTP2.RequestTemplate>
        /// The offset of the path and the varying values: each a length of four bytes, and the
        /// string.
        let texts: Int
        let body: Int
        let bodyCount: Int
        let isValid: Bool
    }

    private(set) var count = 0
    private var items: UnsafeMutablePointer<Item>
    private var itemCapacity: Int
    private var bytes: UnsafeMutablePointer<UInt8>
    private var byteCount = 0
    private var byteCapacity: Int
    private var templates: [HTTP2.RequestTemplate] = []
    /// The last body and its offset: the pushes of a broadcast share one body.
    private var lastBody: (source: [UInt8], offset: Int) = ([], 0)
    private var isFixed = false

    init(items count: Int, bytes: Int) {
        itemCapacity = count
        byteCapacity = bytes
        unsafe items = .allocate(capacity: count)
        unsafe self.bytes = .allocate(capacity: bytes)
    }

    func free() {
        unsafe items.deallocate()
        unsafe bytes.deallocate()
    }

    mutating func add(
        _ template: HTTP2.RequestTemplate,
        _ path: (String, String),
        _ value: String?,
        _ values: [String],
        _ body: [UInt8]
    ) {
        precondition(!isFixed, "the batch is in flight")
        if templates.last !== template { templates.append(template) }
        let texts = byteCount
        var isValid = place(path.0, path.1)
        if let value {
            let isUsable = place(value)
            isValid = isValid && isUsable
        }
        for value in values {
            let isUsable = place(value)
            isValid = isValid && isUsable
        }
        let valueCount = (value == nil ? 0 : 1) + values.count
        isValid = isValid && valueCount == template.varyingCount
        let offset = place(body)
        if count == itemCapacity { growItems() }
        unsafe (items + count).initialize(
            to: Item(
                template: Unmanaged.passUnretained(template),
                texts: texts,
                body: offset,
                bodyCount: body.count,
                isValid: isValid
            )
        )
        count += 1
    }

    /// - Returns: Whether the string can be sent.
    private mutating func place(_ first: String, _ second: String = "") -> Bool {
        let start = byteCount
        reserve(4 + first.utf8.count + second.utf8.count)
        byteCount += 4
        append(first)
        append(second)
        let length = byteCount - start - 4
        unsafe UnsafeMutableRawPointer(bytes + start)
            .storeBytes(of: UInt32(truncatingIfNeeded: length), as: UInt32.self)
        let text = unsafe bytes + start + 4
        // Without a branch, so that many bytes are checked together.
        var bad: UInt8 = 0
        for index in 0..<length {
            let byte = unsafe text[index]
            bad |= byte < 0x20 ? 1 : 0
            bad |= byte == 0x7F ? 1 : 0
        }
        return bad == 0
    }

    private mutating func append(_ text: String) {
        let target = unsafe bytes + byteCount
        let count = unsafe text.utf8.withContiguousStorageIfAvailable { source in
            if let first = source.baseAddress {
                unsafe target.update(from: first, count: source.count)
            }
            return source.count
        }
        if let count {
            byteCount += count
            return
        }
        for byte in text.utf8 {
            unsafe bytes[byteCount] = byte
            byteCount += 1
        }
    }

    private mutating func place(_ body: [UInt8]) -> Int {
        // The previous body is retained, so no other can have its address.
        let isSame = unsafe body.withUnsafeBufferPointer { body in
            unsafe lastBody.source.withUnsafeBufferPointer { last in
                unsafe body.baseAddress == last.baseAddress && body.count == last.count
            }
        }
        if isSame { return lastBody.offset }
        let offset = byteCount
        reserve(body.count)
        unsafe body.withUnsafeBufferPointer { body in
            if let start = body.baseAddress {
                unsafe (bytes + offset).update(from: start, count: body.count)
            }
        }
        byteCount += body.count
        lastBody = (body, offset)
        return offset
    }

    private mutating func reserve(_ more: Int) {
        guard byteCount + more > byteCapacity else { return }
        byteCapacity = max(byteCapacity * 2, byteCount + more)
        let larger = UnsafeMutablePointer<UInt8>.allocate(capacity: byteCapacity)
        unsafe larger.update(from: bytes, count: byteCount)
        unsafe bytes.deallocate()
        unsafe bytes = unsafe larger
    }

    private mutating func growItems() {
        itemCapacity *= 2
        let larger = UnsafeMutablePointer<Item>.allocate(capacity: itemCapacity)
        unsafe larger.moveInitialize(from: items, count: count)
        unsafe items.deallocate()
        unsafe items = unsafe larger
    }

    // MARK: Access by the session

    mutating func fixed(_ index: Int) -> Item {
        precondition((0..<count).contains(index))
        isFixed = true
        return unsafe items[index]
    }

    func body(of item: Item) -> UnsafeMutablePointer<UInt8> { unsafe bytes + item.body }

    func point(_ pairs: UnsafeMutablePointer<nghttp2_nv>, of item: Item, first: Int, end: Int) {
        var next = unsafe bytes + item.texts
        func take(_ index: Int) {
            let count = unsafe UnsafeRawPointer(next).loadUnaligned(as: UInt32.self)
            unsafe pairs[index].value = unsafe next + 4
            unsafe pairs[index].valuelen = Int(count)
            unsafe next += 4 + Int(count)
        }
        take(HTTP2.RequestTemplate.pathIndex)
        for index in first..<end { take(index) }
    }
}
