internal import CCurl

/// The targets that a client may connect to.
///
/// An entry `.suffix.example` allows any host below it, and `host.example` that host; both only
/// over https on port 443 and never at a private address. An entry `host:port` or `host:port/path/`
/// names one target exactly, which may be private: a simulator, or an origin that the operator
/// configured.
package struct HostPolicy: Sendable, Equatable {
    package struct InvalidEntry: Error, Equatable, CustomStringConvertible {
        package let entry: String

        package var description: String {
            "\"\(entry)\" is neither .suffix, host, host:port nor host:port/path/"
        }
    }

    enum Verdict: Equatable {
        case refused
        case publicAddressOnly
        case anyAddress
    }

    private enum Entry: Equatable, Sendable {
        case suffix(String)
        case host(String)
        case place(host: String, port: Int, path: String)
        case anywhere
    }

    private let entries: [Entry]
    private let allowsPlainHTTP: Bool

    /// Every host over https, on any port, that has a public address.
    package static let anyPublicAddress = HostPolicy(entries: [.anywhere])

    private init(entries: [Entry]) {
        self.entries = entries
        allowsPlainHTTP = false
    }

    /// - Parameters:
    ///   - texts: The entries.
    ///   - allowsPlainHTTP: Whether suffixes and hosts also allow http on port 80.
    /// - Throws: `InvalidEntry`, with the first invalid entry.
    package init(_ texts: [String], allowsPlainHTTP: Bool = false) throws(InvalidEntry) {
        self.allowsPlainHTTP = allowsPlainHTTP
        var entries: [Entry] = []
        for text in texts {
            guard let entry = Self.entry(text.lowercased(), original: text) else {
                throw InvalidEntry(entry: text)
            }
            entries.append(entry)
        }
        self.entries = entries
    }

    /// Allows only the target of a configured URL.
    package init(origin url: String) throws(InvalidEntry) {
        try self.init(origins: [url])
    }

    package init(origins urls: [String]) throws(InvalidEntry) {
        allowsPlainHTTP = false
        var entries: [Entry] = []
        for url in urls {
            guard let parts = URLParts(url) else { throw InvalidEntry(entry: url) }
            entries.append(.place(host: parts.host, port: parts.port, path: "/"))
        }
        self.entries = entries
    }

    package func permits(_ url: String) -> Bool {
        guard let parts = URLParts(url) else { return false }
        return verdict(on: parts) != .refused
    }

    func verdict(on url: URLParts) -> Verdict {
        var verdict = Verdict.refused
        let isOnUsualPort = url.isPlainHTTPS || allowsPlainHTTP && url.isPlainHTTP
        for entry in entries {
            switch entry {
            case .suffix(let suffix):
                if isOnUsualPort, url.host.hasSuffix(suffix), url.host.count > suffix.count {
                    verdict = .publicAddressOnly
                }
            case .host(let host):
                if isOnUsualPort, url.host == host { verdict = .publicAddressOnly }
            case .place(let host, let port, let path):
                let isThere =
                    url.host == host && url.port == port
                    && (path == "/" || url.path.hasPrefix(path) && !url.hidesDots)
                if isThere { return .anyAddress }
            case .anywhere:
                if url.scheme == "https" { verdict = .publicAddressOnly }
            }
        }
        return verdict
    }

    private static func entry(_ text: String, original: String) -> Entry? {
        guard !text.isEmpty, !text.contains("://"), !text.contains(where: \.isWhitespace) else {
            return nil
        }
        if text.hasPrefix(".") {
            let rest = text.dropFirst()
            return rest.isEmpty || rest.contains(where: { ":/@".contains($0) })
                ? nil : .suffix(text)
        }
        let slash = original.firstIndex(of: "/") ?? original.endIndex
        let authority = original[..<slash].lowercased()
        let path = String(original[slash...])
        guard path.isEmpty || path.hasSuffix("/") else { return nil }
        guard authority.hasPrefix("[") || authority.contains(":") else {
            return path.isEmpty && !authority.contains("@") ? .host(authority) : nil
        }
        guard
            let colon = authority.lastIndex(of: ":"),
            let port = Int(authority[authority.index(after: colon)...]),
            (1...65_535).contains(port)
        else { return nil }
        let host = String(authority[..<colon])
        let isBracketed = host.hasPrefix("[") && host.hasSuffix("]")
        guard !host.isEmpty, isBracketed || !host.contains(":"), !host.contains("@") else {
            return nil
        }
        return .place(host: host, port: port, path: path.isEmpty ? "/" : path)
    }
}

/// The parts of a URL as libcurl itself will parse them, so that the checked target is the called
/// one.
struct URLParts: Equatable {
    let scheme: String
    /// Lower case; an IPv6 address includes its brackets.
    let host: String
    let port: Int
    let path: String

    init?(_ url: String) {
        guard url.utf8.count <= 8192, url.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
            return nil
        }
        guard let handle = unsafe curl_url() else { return nil }
        defer { unsafe curl_url_cleanup(handle) }
        guard unsafe curl_url_set(handle, CURLUPART_URL, url, 0) == CURLUE_OK else { return nil }
        func part(_ part: CURLUPart, _ flags: Int32 = 0) -> String? {
            var text: UnsafeMutablePointer<CChar>?
            guard
                unsafe curl_url_get(handle, part, &text, UInt32(flags)) == CURLUE_OK,
                let found = unsafe text
            else { return nil }
            defer { unsafe curl_free(found) }
            return unsafe String(cString: found)
        }
        guard
            let scheme = part(CURLUPART_SCHEME)?.lowercased(),
            scheme == "https" || scheme == "http",
            let host = part(CURLUPART_HOST)?.lowercased(), !host.isEmpty,
            let port = part(CURLUPART_PORT, CURLU_DEFAULT_PORT).flatMap({ Int($0) }),
            part(CURLUPART_USER) == nil, part(CURLUPART_PASSWORD) == nil,
            let path = part(CURLUPART_PATH)
        else { return nil }
        self.scheme = scheme
        self.host = host
        self.port = port
        self.path = path
    }

    var isPlainHTTPS: Bool { scheme == "https" && port == 443 }
    var isPlainHTTP: Bool { scheme == "http" && port == 80 }

    /// Whether the path has an encoded dot: decoded by the server, it could lead out of the allowed
    /// path.
    var hidesDots: Bool { path.lowercased().contains("%2e") }
}
