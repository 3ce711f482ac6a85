import Compression
import Testing

@Suite(.timeLimit(.minutes(1)))
struct CompressionTests {
    private let text = Array(String(repeating: "carillon ", count: 5000).utf8)

    @Test(arguments: Compression.allCases)
    func whatWasCompressedComesBack(_ format: Compression) throws {
        for bytes in [[], [7], text] {
            let packed = try format.compress(bytes)
            #expect(try format.decompress(packed, maximumBytes: bytes.count) == bytes)
        }
    }

    @Test(arguments: Compression.allCases)
    func oneByteBeyondTheBoundIsRefused(_ format: Compression) throws {
        let packed = try format.compress(text)
        #expect(throws: CompressionError.tooLarge) {
            try format.decompress(packed, maximumBytes: text.count - 1)
        }
        #expect(throws: CompressionError.tooLarge) {
            try format.decompress(packed, maximumBytes: 0)
        }
    }

    /// A decompression bomb: 64 MiB from some kilobytes, twice.
    @Test(arguments: Compression.allCases)
    func aBombIsRefusedAtItsBound(_ format: Compression) throws {
        let bomb = try format.compress([UInt8](repeating: 0, count: 64 << 20))
        #expect(bomb.count < 128 << 10)
        #expect(throws: CompressionError.tooLarge) {
            try format.decompress(bomb, maximumBytes: 1 << 20)
        }
    }

    @Test(arguments: Compression.allCases)
    func membersFollowOneAnother(_ format: Compression) throws {
        let packed = try format.compress(text) + format.compress([1, 2])
        #expect(try format.decompress(packed, maximumBytes: 1 << 20) == text + [1, 2])
    }

    @Test(arguments: Compression.allCases)
    func everyTruncationIsBroken(_ format: Compression) throws {
        let packed = try format.compress(text)
        for count in 0..<packed.count {
            #expect(throws: CompressionError.broken) {
                try format.decompress(Array(packed[..<count]), maximumBytes: 1 << 20)
            }
        }
    }

    @Test(arguments: Compression.allCases)
    func somethingElseIsBroken(_ format: Compression) throws {
        let packed = try format.compress(text)
        for bytes in [Array("plain".utf8), packed + [0, 1, 2, 3], packed.reversed()] {
            #expect(throws: CompressionError.broken) {
                try format.decompress(bytes, maximumBytes: 1 << 20)
            }
        }
    }

    /// A frame may declare a window of gigabytes, which its decoder would have to allocate.
    @Test func aWindowBeyondEightMebibytesIsRefused() {
        let magic: [UInt8] = [0x28, 0xB5, 0x2F, 0xFD]
        // The frame has no single segment, the window's exponent (10 + 31), and one last block of
        // two bytes.
        let bytes = magic + [0x00, 0xF8, 0x11, 0x00, 0x00, 1, 2]
        #expect(throws: CompressionError.broken) {
            try Compression.zstd.decompress(bytes, maximumBytes: 1 << 20)
        }
    }

    @Test func theNamesOfContentEncodingAreKnown() {
        #expect(Compression(contentCoding: "GZIP") == .gzip)
        #expect(Compression(contentCoding: "x-gzip") == .gzip)
        #expect(Compression(contentCoding: "zstd") == .zstd)
        #expect(Compression(contentCoding: "br") == nil)
    }
}
