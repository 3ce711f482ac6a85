import Gateway
import HTTPServer
import Synchronization

/// The file of a posted form, as it arrives.
struct UploadedFile {
    /// Without its folder, at most 200 characters.
    let name: String
    fileprivate var form: UploadedForm

    /// Returns the next bytes; `nil` at the end of the file. The form has to end with it.
    ///
    /// - Throws: `HTTPProblem`, as `HTTPBodyReader.next`.
    mutating func next() async throws -> [UInt8]? {
        switch try await form.next() {
        case .bytes(let bytes): return bytes
        case .partEnd:
            guard try await form.next() == .end else { throw ConsoleError.badForm }
            return nil
        case .part, .end: throw ConsoleError.badForm
        }
    }

    /// Returns the last component of a name, whatever system it comes from, without control characters.
    static func shown(_ name: String) -> String {
        let last = name.split { $0 == "/" || $0 == "\\" }.last.map(String.init) ?? ""
        if last == "." || last == ".." { return "" }
        let plain = last.unicodeScalars.map { scalar in
            scalar.properties.generalCategory == .control ? "\u{FFFD}" : scalar
        }
        return String(String(String.UnicodeScalarView(plain)).prefix(200))
    }
}

/// A form with a file (`multipart/form-data`): fields, then the file, which is last.
struct UploadedForm {
    /// The largest file; `carillon import` takes larger ones.
    static let maximumBytes = 1 << 30
    /// The fields and heads beside the file.
    static let overheadBytes = 64 << 10
    private static let valueBytes = 4 << 10
    private static let fields = 20

    private let reader: HTTPBodyReader
    private var parser: MultipartParser

    init(_ request: HTTPServerRequest) throws(ConsoleError) {
        guard let reader = request.bodyReader,
            request.header("content-encoding") == nil,
            let parser = MultipartParser(contentType: request.header("content-type") ?? "")
        else { throw .badForm }
        (self.reader, self.parser) = (reader, parser)
    }

    fileprivate mutating func next() async throws -> MultipartParser.Event {
        while true {
            let event: MultipartParser.Event?
            do throws(HTTPProblem) { event = try parser.next() } catch {
                throw ConsoleError.badForm
            }
            if let event { return event }
            let bytes = try await reader.next()
            guard !bytes.isEmpty else { throw ConsoleError.badForm }
            parser.append(bytes)
        }
    }

    /// Reads the fields up to the file.
    mutating func begin() async throws -> (form: Form, file: UploadedFile) {
        var fields: [(name: String, value: String)] = []
        while fields.count <= Self.fields, case .part(let name, let fileName) = try await next() {
            if let fileName {
                return (
                    try Form(fields), UploadedFile(name: UploadedFile.shown(fileName), form: self)
                )
            }
            var value: [UInt8] = []
            while case .bytes(let bytes) = try await next() {
                value += bytes
                guard value.count <= Self.valueBytes else { throw ConsoleError.badForm }
            }
            guard let text = String(validating: value, as: UTF8.self) else {
                throw ConsoleError.badForm
            }
            fields.append((name, text))
        }
        throw ConsoleError.badForm
    }
}

/// The uploads of this process: each holds a few MiB, for as long as its sender takes. An app has one at a
/// time, so it does not keep others out.
enum UploadSlots {
    private static let most = 8
    private static let apps = Mutex<Set<String>>([])

    /// Runs an upload, if there is room for one.
    ///
    /// - Throws: `HTTPProblem` 429 if the app has one already, or too many run.
    static func use<Value>(of app: String, _ body: () async throws -> Value) async throws -> Value {
        guard apps.withLock({ $0.count < most && $0.insert(app).inserted }) else {
            throw HTTPProblem(
                status: 429,
                detail: "a file is being uploaded already; try again in a minute",
                headers: ["Retry-After": "60"]
            )
        }
        defer { apps.withLock { _ = $0.remove(app) } }
        return try await body()
    }
}
