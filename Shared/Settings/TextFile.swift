internal import Glibc

/// Reads a file of at most 1 MiB as text, or returns `nil` if it cannot be read.
package func readTextFile(_ path: String) -> String? {
    guard let bytes = readFile(path, maximumBytes: 1 << 20) else { return nil }
    return String(validating: bytes, as: UTF8.self)
}

/// Reads a file, or returns `nil` if it cannot be read or is larger than `maximumBytes`.
package func readFile(_ path: String, maximumBytes: Int) -> [UInt8]? {
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 65_536)
    while true {
        let count = unsafe read(descriptor, &chunk, chunk.count)
        if count < 0 && errno == EINTR { continue }
        guard count >= 0, bytes.count + count <= maximumBytes else { return nil }
        if count == 0 { return bytes }
        bytes.append(contentsOf: chunk[..<count])
    }
}
