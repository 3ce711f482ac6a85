internal import Glibc

// Runs one fuzz target under libFuzzer, which has the `main`: `Fuzz TARGET [its arguments]`.
//
// A target passes bytes that an attacker could have sent to a module, and checks the module's
// promises for any bytes. A broken promise ends the process, and libFuzzer stores the bytes.

private enum Target: String, CaseIterable {
    case http1
    case http2
    case json
    case keys
    case credentials
    case `where`
    case answers
    case records
    case conditions
    case secure
    case schemas
    case websocket
    case realm
}

/// The variable from which a child process of libFuzzer gets the target's name.
private let inheritance = "CARILLON_FUZZ_TARGET"

/// Set once, before the first input.
nonisolated(unsafe) private var target = Target.json

/// Takes the target's name from the arguments; called once by libFuzzer.
@_cdecl("LLVMFuzzerInitialize")
func initialize(
    _ count: UnsafeMutablePointer<Int32>,
    _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>>
) -> Int32 {
    let name = CommandLine.arguments.dropFirst().first ?? ""
    // libFuzzer starts itself again to merge, with its own arguments only.
    let inherited = unsafe getenv(inheritance).map { unsafe String(cString: $0) } ?? ""
    if let named = Target(rawValue: inherited) {
        unsafe target = named
        return 0
    } else if let named = Target(rawValue: name) {
        unsafe target = named
        unsafe setenv(inheritance, name, 1)
    } else {
        print("usage: Fuzz \(Target.allCases.map(\.rawValue).joined(separator: "|")) …")
        exit(64)
    }
    unsafe arguments.pointee[1] = arguments.pointee[0]
    unsafe arguments.pointee += 1
    unsafe count.pointee -= 1
    return 0
}

/// Tries one input; called by libFuzzer.
@_cdecl("LLVMFuzzerTestOneInput")
func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> Int32 {
    let bytes = unsafe Array(UnsafeBufferPointer(start: start, count: count))
    switch unsafe target {
    case .http1: fuzzHTTP1(bytes)
    case .http2: fuzzHTTP2(bytes)
    case .json: fuzzJSON(bytes)
    case .keys: fuzzKeys(bytes)
    case .credentials: fuzzCredentials(bytes)
    case .where: fuzzWhere(bytes)
    case .answers: fuzzAnswers(bytes)
    case .records: fuzzRecords(bytes)
    case .conditions: fuzzConditions(bytes)
    case .secure: fuzzSecure(bytes)
    case .schemas: fuzzSchemas(bytes)
    case .websocket: fuzzWebSocket(bytes)
    case .realm: fuzzRealm(bytes)
    }
    return 0
}

/// Ends the process with the promise if it is broken.
func require(_ holds: Bool, _ promise: @autoclosure () -> String) {
    if !holds { fatalError(promise()) }
}

/// Runs the body, and again if it exceeded the time for this many bytes: a busy machine is not a
/// hostile input.
func within(_ count: Int, _ body: () -> Void) {
    let bound = Duration.milliseconds(2) + .microseconds(4 * count)
    for _ in 0..<5 where processorTime(body) < bound { return }
    fatalError("\(count) bytes take longer than \(bound)")
}
