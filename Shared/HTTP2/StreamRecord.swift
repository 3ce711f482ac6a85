internal import CNGHTTP2
internal import Glibc

/// One request and what has come of its answer, in one block of raw memory: libnghttp2 knows it by
/// its address, so its callbacks neither retain nor release anything.
///
/// Behind it, in the same block, is room for a small answer.
@safe
struct StreamRecord {
    typealias Pointer = UnsafeMutablePointer<StreamRecord>

    var next: Pointer?
    var previous: Pointer?
    /// Retained until the block is freed: the request's texts and body lie in there.
    let batch: Unmanaged<HTTP2.RequestBatch>
    let tag: Int
    let body: UnsafeMutablePointer<UInt8>
    let bodyCount: Int
    var bodyRead = 0
    var stream: Int32 = 0
    /// How many bytes had been drained before its first: `unsent` while none has.
    var sentFrom = unsent
    var status: Int32 = 0
    var errorCode: UInt32 = 0
    /// The peer has ended its side.
    var isWhole = false
    var isTooLarge = false
    /// Its head has been drained, and the end of its body has not.
    var isUnfinished = false
    /// Its head does not go into frames.
    var isUnsendable = false
    var ownsAnswer = false
    var answer: UnsafeMutablePointer<UInt8>
    var answerCapacity: Int
    var headCount = 0
    var answerCount = 0

    static let unsent = Int.max

    /// What a provider's 200 fits into.
    static let roomForAnswer = 192
    static let blockBytes = MemoryLayout<StreamRecord>.stride + roomForAnswer

    /// Makes room for more of the answer; the old place is freed unless it lies in the block.
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

    /// Frees what it holds; its block is the caller's.
    static func empty(_ record: Pointer) {
        if unsafe record.pointee.ownsAnswer { unsafe record.pointee.answer.deallocate() }
        unsafe record.pointee.batch.release()
    }
}

/// What the callbacks of one client session share, at an address of its own.
@safe
struct ClientRecord {
    typealias Pointer = UnsafeMutablePointer<ClientRecord>

    /// Requests whose stream has not closed, newest first.
    var open: StreamRecord.Pointer?
    var openCount = 0
    /// Of these the oldest of which no byte has been drained; nor has any of the newer ones, as
    /// streams open in their order.
    var unsent: StreamRecord.Pointer?
    /// Bytes that `drain` has given so far.
    var drainedBytes = 0
    /// Of these, those of bodies.
    var bodyBytes = 0
    /// Requests whose head has been drained, and the end of whose body has not.
    var unfinishedCount = 0
    /// In the order in which they ended.
    var firstFinished: StreamRecord.Pointer?
    var lastFinished: StreamRecord.Pointer?
    var hasSettings = false
    var isGoingAway = false
    var goawayCode: UInt32 = 0
    var goawayText: StreamText = StreamText()
    var pingsAnswered = 0
    let maximumHeadBytes: Int
    let maximumBodyBytes: Int
    /// Blocks for the next requests.
    var spare: StreamRecord.Pointer?
    var spareCount = 0
    /// The last stream that was looked up: fields come one after the other.
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

    /// The head of the oldest that was not drained goes out next.
    mutating func sends(_ stream: Int32) {
        guard let record = unsafe unsent, unsafe record.pointee.stream == stream else { return }
        unsafe record.pointee.sentFrom = drainedBytes
        unsafe record.pointee.isUnfinished = true
        unfinishedCount += 1
        unsafe unsent = unsafe record.pointee.previous
    }

    /// Its body has gone out whole, or its stream is over.
    mutating func ends(_ record: StreamRecord.Pointer) {
        guard unsafe record.pointee.isUnfinished else { return }
        unsafe record.pointee.isUnfinished = false
        unfinishedCount -= 1
    }

    /// From the open ones to the finished ones.
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

/// The start of what a peer wrote into its GOAWAY.
struct StreamText {
    private(set) var text = ""

    mutating func set(_ bytes: UnsafeBufferPointer<UInt8>) {
        let start = unsafe UnsafeBufferPointer(rebasing: bytes.prefix(200))
        text = unsafe String(decoding: start, as: UTF8.self)
    }
}
