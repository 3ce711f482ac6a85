internal import CNGHTTP2
internal import Glibc

/// One request and the received part of its answer, in one block of raw memory: libnghttp2
/// identifies it by its address, so its callbacks neither retain nor release anything.
///
/// The block has room for a small answer after the record.
@safe
struct StreamRecord {
    typealias Pointer = UnsafeMutablePointer<StreamRecord>

    var next: Pointer?
    var previous: Pointer?
    /// Retained until the block is freed: it holds the request's strings and body.
    let batch: Unmanaged<HTTP2.RequestBatch>
    let tag: Int
    let body: UnsafeMutablePointer<UInt8>
    let bodyCount: Int
    var bodyRead = 0
    var stream: Int32 = 0
    /// The number of bytes drained before the request's first byte; `unsent` while that has not
    /// been drained.
    var sentFrom = unsent
    var status: Int32 = 0
    var errorCode: UInt32 = 0
    /// Whether the peer has ended its side.
    var isWhole = false
    var isTooLarge = false
    /// Whether its head has been drained, and the end of its body has not.
    var isUnfinished = false
    /// Whether its head does not fit into frames.
    var isUnsendable = false
    var ownsAnswer = false
    var answer: UnsafeMutablePointer<UInt8>
    var answerCapacity: Int
    var headCount = 0
    var answerCount = 0

    static let unsent = Int.max

    /// Enough for a provider's usual answer, a 200.
    static let roomForAnswer = 192
    static let blockBytes = MemoryLayout<StreamRecord>.stride + roomForAnswer

    /// Makes room for more of the answer; the old memory is freed unless it is in the block.
    mutating func reserve(_ count: Int) {
        guard answerCount + count > answerCapacity else { return }
        let capacity = max(answerCapacity * 2, answerCount + count, 1024)
        let larger = UnsafeMutablePointer<UInt8>.allocate(capacity: capacity)
        unsafe larger.update(from: answer, count: answerCount)
        if ownsAnswer { unsafe answer.deallocate() }
        unsafe answer = unsafe larger
        answerCapacity = capacity
        ownsAnswer = true
    }

    mutating func append(_ bytes: UnsafePointer<UInt8>, _ count: Int) {
        unsafe (answer + answerCount).update(from: bytes, count: count)
        answerCount += count
    }

    mutating func appendLength(_ count: Int) {
        unsafe answer[answerCount] = UInt8(truncatingIfNeeded: count >> 8)
        unsafe answer[answerCount + 1] = UInt8(truncatingIfNeeded: count)
        answerCount += 2
    }

    /// Frees the record's memory, but not the block, which belongs to the caller.
    static func empty(_ record: Pointer) {
        if unsafe record.pointee.ownsAnswer { unsafe record.pointee.answer.deallocate() }
        unsafe record.pointee.batch.release()
    }
}

/// The state that the callbacks of one client session share, at a fixed address.
@safe
struct ClientRecord {
    typealias Pointer = UnsafeMutablePointer<ClientRecord>

    /// Requests whose stream has not closed, newest first.
    var open: StreamRecord.Pointer?
    var openCount = 0
    /// The oldest open request of which no byte has been drained. No byte of a newer request has
    /// been drained either, as streams open in order.
    var unsent: StreamRecord.Pointer?
    /// The bytes that `drain` has returned so far.
    var drainedBytes = 0
    /// The drained bytes that belong to bodies.
    var bodyBytes = 0
    /// The number of requests whose head has been drained, and the end of whose body has not.
    var unfinishedCount = 0
    /// The ended requests, in the order in which they ended.
    var firstFinished: StreamRecord.Pointer?
    var lastFinished: StreamRecord.Pointer?
    var hasSettings = false
    var isGoingAway = false
    var goawayCode: UInt32 = 0
    var goawayText: GoAwayDebugData = GoAwayDebugData()
    var pingsAnswered = 0
    let maximumHeadBytes: Int
    let maximumBodyBytes: Int
    /// Free blocks for the next requests.
    var spare: StreamRecord.Pointer?
    var spareCount = 0
    /// The stream of the last lookup: fields come one after the other.
    var cachedStream: Int32 = 0
    var cached: StreamRecord.Pointer?

    init(maximumHeadBytes: Int, maximumBodyBytes: Int) {
        self.maximumHeadBytes = maximumHeadBytes
        self.maximumBodyBytes = maximumBodyBytes
    }

    static let keptBlocks = 1024

    mutating func makeBlock() -> UnsafeMutableRawPointer {
        if let block = unsafe spare {
            unsafe spare = unsafe block.pointee.next
            spareCount -= 1
            return UnsafeMutableRawPointer(block)
        }
        return UnsafeMutableRawPointer.allocate(
            byteCount: StreamRecord.blockBytes,
            alignment: MemoryLayout<StreamRecord>.alignment
        )
    }

    mutating func free(_ record: StreamRecord.Pointer) {
        unsafe StreamRecord.empty(record)
        guard spareCount < Self.keptBlocks else {
            unsafe UnsafeMutableRawPointer(record).deallocate()
            return
        }
        unsafe record.pointee.next = unsafe spare
        unsafe spare = unsafe record
        spareCount += 1
    }

    mutating func freeSpare() {
        while let block = unsafe spare {
            unsafe spare = unsafe block.pointee.next
            unsafe UnsafeMutableRawPointer(block).deallocate()
        }
    }

    mutating func link(_ record: StreamRecord.Pointer) {
        unsafe record.pointee.next = unsafe open
        unsafe open?.pointee.previous = unsafe record
        unsafe open = unsafe record
        openCount += 1
        if unsafe unsent == nil { unsafe unsent = unsafe record }
    }

    /// Notes that the head of the oldest undrained request is sent next.
    mutating func sends(_ stream: Int32) {
        guard let record = unsafe unsent, unsafe record.pointee.stream == stream else { return }
        unsafe record.pointee.sentFrom = drainedBytes
        unsafe record.pointee.isUnfinished = true
        unfinishedCount += 1
        unsafe unsent = unsafe record.pointee.previous
    }

    /// Notes that the request's body is completely sent, or that its stream has ended.
    mutating func ends(_ record: StreamRecord.Pointer) {
        guard unsafe record.pointee.isUnfinished else { return }
        unsafe record.pointee.isUnfinished = false
        unfinishedCount -= 1
    }

    /// Moves a request from the open requests to the finished ones.
    mutating func finish(_ record: StreamRecord.Pointer) {
        unsafe ends(record)
        let (next, previous) = unsafe (record.pointee.next, record.pointee.previous)
        if unsafe unsent == record { unsafe unsent = unsafe previous }
        if let previous = unsafe previous {
            unsafe previous.pointee.next = unsafe next
        } else {
            unsafe open = unsafe next
        }
        unsafe next?.pointee.previous = unsafe previous
        unsafe record.pointee.next = nil
        unsafe record.pointee.previous = nil
        if let last = unsafe lastFinished {
            unsafe last.pointee.next = unsafe record
        } else {
            unsafe firstFinished = unsafe record
        }
        unsafe lastFinished = unsafe record
        openCount -= 1
        if unsafe cached == record {
            unsafe cached = nil
            cachedStream = 0
        }
    }
}

/// The beginning of the debug data in a peer's GOAWAY.
struct GoAwayDebugData {
    private(set) var text = ""

    mutating func set(_ bytes: UnsafeBufferPointer<UInt8>) {
        let start = unsafe UnsafeBufferPointer(rebasing: bytes.prefix(200))
        text = unsafe String(decoding: start, as: UTF8.self)
    }
}
