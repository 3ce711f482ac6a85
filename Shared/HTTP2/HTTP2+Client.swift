internal import CNGHTTP2

extension HTTP2 {
    /// The common part of many requests, laid out once for libnghttp2. The fields go into the
    /// header table of each connection (except `authorization`, which libnghttp2 keeps out of it);
    /// the path and the varying values never do, as they would evict all others.
    ///
    /// Immutable, so it may be shared between threads.
    @safe
    package final class RequestTemplate: @unchecked Sendable {
        /// In the order of sending; the path and the varying values are still empty.
        let pairs: UnsafeMutablePointer<nghttp2_nv>
        let count: Int
        package let varyingCount: Int

        static let pathIndex = 3
        private let bytes: UnsafeMutablePointer<UInt8>

        /// - Parameters:
        ///   - method: The method of all requests.
        ///   - scheme: `https`.
        ///   - authority: Host, and the port if it is not the scheme's default.
        ///   - fields: Constant; names in lower case. The caller has validated them.
        ///   - varying: Names of the fields whose values each request brings.
        package init(
            method: String,
            scheme: String,
            authority: String,
            fields: [Field],
            varying: [String]
        ) {
            var all: [(name: String, value: String, isConstant: Bool)] = [
                (":method", method, true), (":scheme", scheme, true),
                (":authority", authority, true), (":path", "", false),
            ]
            for field in fields { all.append((field.name, field.value, true)) }
            for name in varying { all.append((name, "", false)) }
            count = all.count
            varyingCount = varying.count
            let size = all.reduce(1) { $0 + $1.name.utf8.count + $1.value.utf8.count }
            unsafe bytes = .allocate(capacity: size)
            unsafe pairs = .allocate(capacity: all.count)
            var next = unsafe bytes
            func place(_ text: String) -> UnsafeMutablePointer<UInt8> {
                let start = unsafe next
                for byte in text.utf8 {
                    unsafe next.initialize(to: byte)
                    unsafe next += 1
                }
                return unsafe start
            }
            for (index, field) in all.enumerated() {
                var flags = NGHTTP2_NV_FLAG_NO_COPY_NAME.rawValue
                flags |= NGHTTP2_NV_FLAG_NO_COPY_VALUE.rawValue
                if !field.isConstant { flags |= NGHTTP2_NV_FLAG_NO_INDEX.rawValue }
                let pair = unsafe nghttp2_nv(
                    name: place(field.name),
                    value: place(field.value),
                    namelen: field.name.utf8.count,
                    valuelen: field.value.utf8.count,
                    flags: UInt8(flags)
                )
                unsafe (pairs + index).initialize(to: pair)
            }
        }

        deinit {
            unsafe pairs.deallocate()
            unsafe bytes.deallocate()
        }
    }

    /// A whole answer. Its fields are parsed only on demand.
    package struct Response: Sendable, Equatable {
        package let status: Int
        /// The storage of several answers that came together: the fields, each as two lengths of
        /// two bytes, name and value; then the body.
        private let storage: [UInt8]
        private let start: Int
        private let headEnd: Int
        private let end: Int

        init(status: Int, storage: [UInt8], start: Int, headBytes: Int, count: Int) {
            self.status = status
            self.storage = storage
            self.start = start
            headEnd = start + headBytes
            end = start + count
        }

        package static func == (one: Response, other: Response) -> Bool {
            one.status == other.status && one.headEnd - one.start == other.headEnd - other.start
                && one.storage[one.start..<one.end] == other.storage[other.start..<other.end]
        }

        package var body: [UInt8] { Array(storage[headEnd..<end]) }

        /// The fields without `:status`, in the order of arrival; names are lower case.
        package var fields: [Field] {
            var fields: [Field] = []
            unsafe visit { name, value in
                unsafe fields.append(Field(name: Self.text(name), value: Self.text(value)))
                return true
            }
            return fields
        }

        /// - Parameters:
        ///   - name: In lower case.
        ///   - expected: Returned itself if the value equals it, which saves making a string.
        /// - Returns: The first value under that name.
        package func field(_ name: String, expected: String? = nil) -> String? {
            var found: String?
            unsafe visit { candidate, value in
                guard unsafe Self.equal(candidate, name) else { return true }
                if let expected, unsafe Self.equal(value, expected) {
                    found = expected
                } else {
                    found = unsafe Self.text(value)
                }
                return false
            }
            return found
        }

        private func visit(
            _ body: (UnsafeBufferPointer<UInt8>, UnsafeBufferPointer<UInt8>) -> Bool
        ) {
            unsafe storage.withUnsafeBufferPointer { storage in
                var offset = start
                while offset + 4 <= headEnd {
                    let nameEnd = unsafe offset + 4 + Self.length(storage, at: offset)
                    let valueEnd = unsafe nameEnd + Self.length(storage, at: offset + 2)
                    guard
                        unsafe body(
                            UnsafeBufferPointer(rebasing: storage[offset + 4..<nameEnd]),
                            UnsafeBufferPointer(rebasing: storage[nameEnd..<valueEnd])
                        )
                    else { return }
                    offset = valueEnd
                }
            }
        }

        private static func length(_ storage: UnsafeBufferPointer<UInt8>, at offset: Int) -> Int {
            unsafe Int(storage[offset]) << 8 | Int(storage[offset + 1])
        }

        private static func equal(_ bytes: UnsafeBufferPointer<UInt8>, _ text: String) -> Bool {
            guard bytes.count == text.utf8.count else { return false }
            return unsafe bytes.elementsEqual(text.utf8)
        }

        /// Decodes a field as UTF-8 if it is valid, else as Latin-1.
        private static func text(_ bytes: UnsafeBufferPointer<UInt8>) -> String {
            unsafe String(validating: bytes, as: UTF8.self)
                ?? String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
        }
    }

    /// How a request ended.
    package enum Outcome: Sendable, Equatable {
        case answered(Response)
        /// The peer reports that it did not process the request: GOAWAY, or REFUSED_STREAM.
        case notProcessed
        /// The request was cancelled, or the connection ended, before a byte of the request was
        /// written.
        case notSent
        /// Its head is too large to be sent. No byte of it was written.
        case unsendable
        /// The stream was reset, by the peer or by `cancel`: it may have been processed.
        case reset(code: UInt32)
        /// The connection ended after the request was written.
        case lost
        /// The answer exceeded a limit.
        case tooLarge
        /// The peer closed the stream without an answer, or with an answer that HTTP does not
        /// allow.
        case malformed
    }

    package struct Completion: Sendable {
        /// The request's tag, as its owner set it.
        package let tag: Int
        package let outcome: Outcome
    }
}
