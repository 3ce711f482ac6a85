import Cryptography
import HTTPServer

/// The style, the script and the icon: embedded in the build, with their hash in the name, so that
/// browsers keep them for a year.
struct StaticFiles: Sendable {
    enum Name: String, CaseIterable {
        case style = "console.css"
        case script = "console.js"
        case mark = "mark.svg"

        var contentType: String {
            switch self {
            case .style: "text/css; charset=utf-8"
            case .script: "text/javascript; charset=utf-8"
            case .mark: "image/svg+xml"
            }
        }

        var bytes: [UInt8] {
            switch self {
            case .style: PackageResources.console_css
            case .script: PackageResources.console_js
            case .mark: PackageResources.mark_svg
            }
        }
    }

    private let names: [Name: String]

    init() {
        names = Dictionary(
            uniqueKeysWithValues: Name.allCases.map { name in
                (name, Hex.encode(Array(sha256(name.bytes).prefix(6))) + "-" + name.rawValue)
            }
        )
    }

    func address(of name: Name) -> Address { Address("assets", names[name] ?? name.rawValue) }

    /// - Returns: `nil` if there is no such file, or it was replaced by a later version.
    func response(_ fileName: String) -> HTTPServerResponse? {
        guard let name = names.first(where: { $0.value == fileName })?.key else { return nil }
        return HTTPServerResponse(
            status: 200,
            headers: [
                "Content-Type": name.contentType,
                "Cache-Control": "public, max-age=31536000, immutable",
                "X-Content-Type-Options": "nosniff",
            ],
            body: name.bytes
        )
    }
}
