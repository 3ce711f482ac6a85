internal import CNGHTTP2
internal import Glibc

/// The allocator of one libnghttp2 session: a request allocates and frees a handful of small blocks
/// of few sizes, which are reused for the next request. It has a fixed address, and outlives the
/// session.
@safe
struct SessionMemory {
    typealias Pointer = UnsafeMutablePointer<SessionMemory>

    /// Precedes each block; as large as the alignment that libnghttp2 may expect.
    @safe
    private struct Header {
        /// The index of its size class; `uncached` if it came directly from libc.
        var index: Int
        /// The next free block, while it is free.
        var next: UnsafeMutableRawPointer?
    }

    @safe
    private struct Class {
        var first: UnsafeMutableRawPointer?
        var count = 0
    }

    private static let step = 64
    private static let classes = 16
    private static let uncached = -1
    /// The most free blocks of one size class, at most 1 MiB: enough for 1024 streams.
    private static let keptBlocks = 1024

    private let kept: UnsafeMutablePointer<Class>

    private init() {
        unsafe kept = .allocate(capacity: Self.classes)
        unsafe kept.initialize(repeating: Class(), count: Self.classes)
    }

    static func make() -> Pointer {
        let memory = Pointer.allocate(capacity: 1)
        unsafe memory.initialize(to: SessionMemory())
        return unsafe memory
    }

    /// Frees the memory after every block has been returned.
    static func destroy(_ memory: Pointer) {
        for index in 0..<classes {
            while let block = unsafe memory.pointee.kept[index].first {
                let header = unsafe block.assumingMemoryBound(to: Header.self)
                unsafe memory.pointee.kept[index].first = unsafe header.pointee.next
                unsafe Glibc.free(block)
            }
        }
        unsafe memory.pointee.kept.deallocate()
        unsafe memory.deallocate()
    }

    func take(_ size: Int) -> UnsafeMutableRawPointer? {
        let index = max(0, (size - 1) / Self.step)
        guard index < Self.classes else { return unsafe Self.makeBlock(size, Self.uncached) }
        guard let block = unsafe kept[index].first else {
            return unsafe Self.makeBlock((index + 1) * Self.step, index)
        }
        let header = unsafe block.assumingMemoryBound(to: Header.self)
        unsafe kept[index].first = unsafe header.pointee.next
        unsafe kept[index].count -= 1
        return unsafe block + MemoryLayout<Header>.stride
    }

    private static func makeBlock(_ size: Int, _ index: Int) -> UnsafeMutableRawPointer? {
        let (total, isTooLarge) = size.addingReportingOverflow(MemoryLayout<Header>.stride)
        guard !isTooLarge, let block = unsafe malloc(total) else { return nil }
        unsafe block.initializeMemory(as: Header.self, to: Header(index: index, next: nil))
        return unsafe block + MemoryLayout<Header>.stride
    }

    func giveBack(_ pointer: UnsafeMutableRawPointer?) {
        guard let pointer = unsafe pointer else { return }
        let block = unsafe pointer - MemoryLayout<Header>.stride
        let header = unsafe block.assumingMemoryBound(to: Header.self)
        let index = unsafe header.pointee.index
        guard unsafe index >= 0 && kept[index].count < Self.keptBlocks else {
            unsafe Glibc.free(block)
            return
        }
        unsafe header.pointee.next = unsafe kept[index].first
        unsafe kept[index].first = unsafe block
        unsafe kept[index].count += 1
    }

    func resize(_ pointer: UnsafeMutableRawPointer?, _ size: Int) -> UnsafeMutableRawPointer? {
        guard let pointer = unsafe pointer else { return unsafe take(size) }
        let block = unsafe pointer - MemoryLayout<Header>.stride
        let header = unsafe block.assumingMemoryBound(to: Header.self)
        let index = unsafe header.pointee.index
        if index == Self.uncached {
            guard size > Self.classes * Self.step else { return unsafe move(pointer, size, size) }
            let (total, isTooLarge) = size.addingReportingOverflow(MemoryLayout<Header>.stride)
            guard !isTooLarge, let larger = unsafe realloc(block, total) else { return nil }
            return unsafe larger + MemoryLayout<Header>.stride
        }
        let room = (index + 1) * Self.step
        return size <= room ? unsafe pointer : unsafe move(pointer, size, room)
    }

    private func move(
        _ pointer: UnsafeMutableRawPointer,
        _ size: Int,
        _ count: Int
    ) -> UnsafeMutableRawPointer? {
        guard let larger = unsafe take(size) else { return nil }
        unsafe memcpy(larger, pointer, count)
        unsafe giveBack(pointer)
        return unsafe larger
    }

    /// Returns the functions that libnghttp2 calls; it copies this struct.
    static func functions(_ memory: Pointer) -> nghttp2_mem {
        unsafe nghttp2_mem(
            mem_user_data: memory,
            malloc: { size, data in unsafe sessionMemory(data)?.pointee.take(size) },
            free: { pointer, data in unsafe sessionMemory(data)?.pointee.giveBack(pointer) },
            calloc: { count, size, data in
                let (total, isTooLarge) = count.multipliedReportingOverflow(by: size)
                guard !isTooLarge, let block = unsafe sessionMemory(data)?.pointee.take(total)
                else { return nil }
                unsafe memset(block, 0, total)
                return unsafe block
            },
            realloc: { pointer, size, data in
                unsafe sessionMemory(data)?.pointee.resize(pointer, size)
            }
        )
    }
}

private func sessionMemory(_ data: UnsafeMutableRawPointer?) -> SessionMemory.Pointer? {
    unsafe data?.assumingMemoryBound(to: SessionMemory.self)
}
