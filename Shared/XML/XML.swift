internal import CExpat

/// One element of an XML document, with its content.
///
/// Authority: expat parses; this module limits it. A document type declaration is refused: only XML's
/// own five entities exist, nothing expands, and nothing is fetched. Values, no states.
package struct XMLElement: Sendable, Equatable {
    package struct Attribute: Sendable, Equatable {
        package var name: String
        package var namespace: String?
        package var value: String
    }

    /// The local name, without its prefix.
    package var name: String
    /// The namespace's URI, if the name has one.
    package var namespace: String?
    package var attributes: [Attribute] = []
    package var children: [XMLElement] = []
    /// The character data directly in this element, joined.
    package var text = ""

    /// Returns the value of the first attribute with that local name.
    package func attribute(_ name: String) -> String? {
        attributes.first { $0.name == name }?.value
    }

    /// Returns the first child with that local name.
    package func child(_ name: String) -> XMLElement? { children.first { $0.name == name } }
}

/// Why a document is not accepted as XML. Safe to show: it contains nothing of the document.
package struct XMLError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The first line is 1.
    package let line: Int
    package let problem: String

    package init(line: Int, problem: String) {
        self.line = line
        self.problem = problem
    }

    package var description: String { "line \(line): \(problem)" }
}

extension XMLElement {
    /// Parses one document.
    ///
    /// - Parameters:
    ///   - bytes: In UTF-8, or the encoding that it declares.
    ///   - maximumDepth: The most elements that may be open at once.
    ///   - maximumBytes: A longer document is refused unread.
    /// - Returns: The root.
    /// - Throws: `XMLError` if it is not well-formed, has a document type, or exceeds a limit.
    package static func parse(
        _ bytes: [UInt8],
        maximumDepth: Int = 64,
        maximumBytes: Int = 1 << 20
    ) throws(XMLError) -> XMLElement {
        guard bytes.count <= min(maximumBytes, 1 << 30) else {
            throw XMLError(line: 1, problem: "longer than \(maximumBytes) bytes")
        }
        let parser = try ParserHandle()
        let builder = TreeBuilder(parser, maximumDepth: maximumDepth)
        return try withExtendedLifetime(builder) { () throws(XMLError) in
            try parser.run(bytes, builder)
        }
    }
}

/// The separator of a namespace's URI and a local name in expat's output; it is never in an XML
/// name.
private let namespaceSeparator: UInt8 = 0x0C

/// Sole owner of one `XML_Parser`, for one document.
@safe
private final class ParserHandle {
    let pointer: OpaquePointer

    init() throws(XMLError) {
        guard let pointer = unsafe XML_ParserCreateNS(nil, CChar(namespaceSeparator)) else {
            throw XMLError(line: 0, problem: "no parser to be had")
        }
        unsafe self.pointer = pointer
    }

    deinit { unsafe XML_ParserFree(pointer) }

    /// Parses the whole document. The builder is only borrowed: the caller keeps it alive.
    func run(_ bytes: [UInt8], _ builder: TreeBuilder) throws(XMLError) -> XMLElement {
        unsafe XML_SetUserData(pointer, Unmanaged.passUnretained(builder).toOpaque())
        unsafe XML_SetElementHandler(pointer, elementStarted, elementEnded)
        unsafe XML_SetCharacterDataHandler(pointer, charactersRead)
        unsafe XML_SetStartDoctypeDeclHandler(pointer, documentTypeStarted)
        let status = unsafe bytes.withUnsafeBytes { buffer in
            unsafe XML_Parse(
                pointer,
                buffer.baseAddress?.assumingMemoryBound(to: CChar.self),
                Int32(buffer.count),
                1
            )
        }
        if let problem = builder.problem { throw XMLError(line: line, problem: problem) }
        guard status == XML_STATUS_OK, let root = builder.root else {
            let code = unsafe XML_GetErrorCode(pointer)
            let text = unsafe XML_ErrorString(code).map { unsafe String(cString: $0) }
            throw XMLError(line: line, problem: text ?? "not well-formed")
        }
        return root
    }

    var line: Int { unsafe Int(XML_GetCurrentLineNumber(pointer)) }

    func stop() { unsafe _ = XML_StopParser(pointer, 0) }
}

/// Builds the tree while expat parses.
private final class TreeBuilder {
    private let parser: ParserHandle
    private let maximumDepth: Int
    private var open: [XMLElement] = []
    private(set) var root: XMLElement?
    private(set) var problem: String?

    init(_ parser: ParserHandle, maximumDepth: Int) {
        self.parser = parser
        self.maximumDepth = maximumDepth
    }

    func refuse(_ problem: String) {
        if self.problem == nil { self.problem = problem }
        parser.stop()
    }

    func started(_ name: String, _ attributes: [(String, String)]) {
        guard problem == nil else { return }
        guard open.count < maximumDepth else { return refuse("nested too deeply") }
        let (namespace, local) = Self.split(name)
        var element = XMLElement(name: local, namespace: namespace)
        element.attributes = attributes.map { name, value in
            let (namespace, local) = Self.split(name)
            return XMLElement.Attribute(name: local, namespace: namespace, value: value)
        }
        open.append(element)
    }

    func ended() {
        guard let element = open.popLast() else { return }
        if open.isEmpty { root = element } else { open[open.count - 1].children.append(element) }
    }

    func read(_ text: String) {
        guard problem == nil, !open.isEmpty else { return }
        open[open.count - 1].text += text
    }

    private static func split(_ name: String) -> (namespace: String?, local: String) {
        let separator = Character(Unicode.Scalar(namespaceSeparator))
        guard let place = name.firstIndex(of: separator) else { return (nil, name) }
        return (String(name[..<place]), String(name[name.index(after: place)...]))
    }
}

private func builder(_ context: UnsafeMutableRawPointer?) -> TreeBuilder? {
    unsafe context.map { unsafe Unmanaged<TreeBuilder>.fromOpaque($0).takeUnretainedValue() }
}

private func elementStarted(
    context: UnsafeMutableRawPointer?,
    name: UnsafePointer<XML_Char>?,
    attributes: UnsafeMutablePointer<UnsafePointer<XML_Char>?>?
) {
    guard let builder = unsafe builder(context), let name = unsafe name else { return }
    var pairs: [(String, String)] = []
    var index = 0
    while let key = unsafe attributes?[index], let value = unsafe attributes?[index + 1] {
        pairs.append((unsafe String(cString: key), unsafe String(cString: value)))
        index += 2
    }
    builder.started(unsafe String(cString: name), pairs)
}

private func elementEnded(context: UnsafeMutableRawPointer?, name: UnsafePointer<XML_Char>?) {
    unsafe builder(context)?.ended()
}

private func charactersRead(
    context: UnsafeMutableRawPointer?,
    text: UnsafePointer<XML_Char>?,
    count: Int32
) {
    let bytes = unsafe UnsafeRawBufferPointer(start: text, count: Int(count))
    unsafe builder(context)?.read(unsafe String(decoding: bytes, as: UTF8.self))
}

private func documentTypeStarted(
    context: UnsafeMutableRawPointer?,
    name: UnsafePointer<XML_Char>?,
    systemID: UnsafePointer<XML_Char>?,
    publicID: UnsafePointer<XML_Char>?,
    hasInternalSubset: Int32
) {
    unsafe builder(context)?.refuse("a document type declaration is not taken")
}
