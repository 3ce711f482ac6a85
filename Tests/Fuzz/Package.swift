// swift-tools-version: 6.2
import PackageDescription

// The fuzz targets, in a package of their own: it builds the modules with coverage for libFuzzer,
// from the same sources (`Rooms` is a link to `Shared`). `deploy/fuzz` builds and runs it.

let settings: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .strictMemorySafety(),
    .treatAllWarnings(as: .error),
]

let package = Package(
    name: "carillon-fuzz",
    targets: [
        .systemLibrary(
            name: "CNGHTTP2",
            path: "Rooms/CNGHTTP2",
            pkgConfig: "libnghttp2",
            providers: [.apt(["libnghttp2-dev"])]
        ),
        .systemLibrary(
            name: "CPCRE2",
            path: "Rooms/CPCRE2",
            pkgConfig: "libpcre2-8",
            providers: [.apt(["libpcre2-dev"])]
        ),
        .systemLibrary(
            name: "CWslay",
            path: "Rooms/CWslay",
            providers: [.apt(["libwslay-dev"])]
        ),
        .systemLibrary(
            name: "CZlib",
            path: "Rooms/CZlib",
            pkgConfig: "zlib",
            providers: [.apt(["zlib1g-dev"])]
        ),
        .systemLibrary(
            name: "CZstd",
            path: "Rooms/CZstd",
            pkgConfig: "libzstd",
            providers: [.apt(["libzstd-dev"])]
        ),
        .target(name: "JSON", path: "Rooms/JSON", swiftSettings: settings),
        .target(
            name: "HTTP2",
            dependencies: ["CNGHTTP2"],
            path: "Rooms/HTTP2",
            swiftSettings: settings
        ),
        // Only the HTTP/1.1 parser of the server, by links to those files: it needs no loop, no TLS
        // and no socket, and its names are internal to the module.
        .target(
            name: "HTTP1",
            dependencies: ["JSON"],
            path: "Sources/HTTP1",
            swiftSettings: settings + [.unsafeFlags(["-enable-testing"])]
        ),
        // Only the part of WebSockets that reads a client's frames, by links to those files.
        .target(
            name: "WebSocket",
            dependencies: ["CWslay"],
            path: "Sources/WebSocket",
            swiftSettings: settings + [.unsafeFlags(["-enable-testing"])]
        ),
        // Only the part of the gateway that reads the caller from an unauthenticated body.
        .target(
            name: "Credentials",
            dependencies: ["JSON"],
            path: "Sources/Credentials",
            swiftSettings: settings
        ),
        .target(
            name: "Observability",
            path: "Rooms/Observability",
            swiftSettings: settings
        ),
        .target(
            name: "PushCore",
            dependencies: ["JSON", "Observability"],
            path: "Rooms/PushCore",
            swiftSettings: settings
        ),
        .target(
            name: "RegularExpressions",
            dependencies: ["CPCRE2"],
            path: "Rooms/RegularExpressions",
            swiftSettings: settings
        ),
        .target(
            name: "RemoteConfig",
            dependencies: ["JSON", "PushCore", "RegularExpressions"],
            path: "Rooms/RemoteConfig",
            swiftSettings: settings + [.unsafeFlags(["-enable-testing"])]
        ),
        .target(
            name: "JSONSchema",
            dependencies: ["JSON", "RegularExpressions"],
            path: "Rooms/JSONSchema",
            swiftSettings: settings
        ),
        // Only the parts of the two database modules that need no database, by links to those
        // files: bound values, and compiled conditions.
        .target(
            name: "Postgres",
            dependencies: ["JSON"],
            path: "Sources/Postgres",
            swiftSettings: settings + [.unsafeFlags(["-enable-testing"])]
        ),
        .target(
            name: "WhereSQL",
            dependencies: ["JSON", "Postgres", "PushCore"],
            path: "Sources/WhereSQL",
            swiftSettings: settings
        ),
        .target(
            name: "PushEvents",
            dependencies: ["JSON", "PushCore"],
            path: "Rooms/PushEvents",
            swiftSettings: settings
        ),
        // Only the answer parsers of the providers, and of the transport only the response, by
        // links to those files: neither needs a socket.
        .target(
            name: "HTTPTransport",
            path: "Sources/HTTPTransport",
            swiftSettings: settings
        ),
        .target(
            name: "PushProviders",
            dependencies: ["HTTPTransport", "JSON", "PushCore"],
            path: "Sources/PushProviders",
            swiftSettings: settings + [.unsafeFlags(["-enable-testing"])]
        ),
        // Only the part of the secure payload service that reads bodies and makes messages of them,
        // by links to those files.
        .target(
            name: "SecurePayload",
            dependencies: ["JSON", "PushCore"],
            path: "Sources/SecurePayload",
            swiftSettings: settings + [.unsafeFlags(["-enable-testing"])]
        ),
        .target(
            name: "Compression",
            dependencies: ["CZlib", "CZstd", "JSON", "Observability"],
            path: "Rooms/Compression",
            swiftSettings: settings
        ),
        .target(
            name: "RealmSync",
            dependencies: ["Compression", "JSON", "Observability"],
            path: "Rooms/RealmSync",
            swiftSettings: settings
        ),
        .executableTarget(
            name: "Fuzz",
            dependencies: [
                "Credentials", "JSON", "HTTP1", "HTTP2", "HTTPTransport", "JSONSchema", "Postgres",
                "PushCore", "PushEvents", "PushProviders", "RealmSync", "RegularExpressions",
                "RemoteConfig", "SecurePayload",
                "WebSocket", "WhereSQL",
            ],
            path: "Sources/Fuzz",
            swiftSettings: settings
        ),
    ],
    swiftLanguageModes: [.v6]
)
