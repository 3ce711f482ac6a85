package import HTTPServer

extension HTTPServerRequest {
    /// The public base URL of this service, for each surface's `Location`: the scheme and the host
    /// that the client used. Behind a proxy these are in `X-Forwarded-Proto` and
    /// `X-Forwarded-Host`; with several proxies, the first entry counts. A client that sends wrong
    /// headers misleads only itself.
    package var outsideBase: String {
        let stated = forwarded("x-forwarded-proto")?.lowercased()
        let scheme = stated == "https" || stated == "http" ? stated ?? scheme : scheme
        let host = forwarded("x-forwarded-host").flatMap { Self.isHost($0) ? $0 : nil }
        return "\(scheme)://\(host ?? header("host") ?? "localhost")"
    }

    private func forwarded(_ name: String) -> String? {
        header(name)?.prefix { $0 != "," }.filter { $0 != " " && $0 != "\t" }
    }

    /// Whether it is a name or an address, with or without a port.
    private static func isHost(_ text: String) -> Bool {
        (1...255).contains(text.utf8.count)
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"):
                    true
                default: "-._:[]".utf8.contains(byte)
                }
            }
    }
}
