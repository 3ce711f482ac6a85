// swift-tools-version: 6.2
import PackageDescription

// The edges between these targets are the architecture: what a room may import is what it lists
// here, and `deploy/check` compares every import with it. There are no Swift packages: each
// dependency is a C library that Debian keeps patched, found by pkg-config.

let settings: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .strictMemorySafety(),
    .treatAllWarnings(as: .error),
]

/// Tests are built beside what is released, and not optimized themselves: that takes minutes, and what
/// they call is. What measures is no test.
let testSettings = settings + [.unsafeFlags(["-Onone"], .when(configuration: .release))]

func library(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .target(
        name: name,
        dependencies: dependencies,
        path: "Shared/\(name)",
        swiftSettings: settings
    )
}

func cLibrary(_ name: String, _ pkgConfig: String, apt: String) -> Target {
    .systemLibrary(
        name: name,
        path: "Shared/\(name)",
        pkgConfig: pkgConfig,
        providers: [.apt([apt])]
    )
}

/// What every service may use beside the rooms of its own.
let serviceRooms: [Target.Dependency] = [
    "PushCore", "ServiceKit", "EventLoop", "Cryptography", "XML", "JSON", "Observability",
    "Settings",
]

func service(
    _ name: String,
    _ dependencies: [Target.Dependency],
    exclude: [String] = []
) -> Target {
    .executableTarget(
        name: name,
        dependencies: serviceRooms + dependencies,
        path: "Services/\(name)",
        exclude: exclude,
        swiftSettings: settings
    )
}

func tests(
    _ name: String,
    _ dependencies: [Target.Dependency],
    exclude: [String] = []
) -> Target {
    .testTarget(
        name: name,
        dependencies: ["Support"] + dependencies,
        path: "Tests/\(name)",
        exclude: exclude,
        swiftSettings: testSettings
    )
}

/// `CARILLON_TESTS=DispatcherTests,JSONTests swift build --build-tests` builds these test targets and
/// no others, which saves minutes after a change far below.
let chosenTests = Context.environment["CARILLON_TESTS"].map { list in
    Set(list.split(separator: ",").map(String.init))
}

let package = Package(
    name: "carillon",
    products: [
        .executable(name: "carillon-registration", targets: ["Registration"]),
        .executable(name: "carillon-dispatcher", targets: ["Dispatcher"]),
        .executable(name: "carillon-config-watcher", targets: ["ConfigWatcher"]),
        .executable(name: "carillon-secure-payload", targets: ["SecurePayload"]),
        .executable(name: "carillon-ingest", targets: ["Ingest"]),
        .executable(name: "carillon-simulator", targets: ["Simulator"]),
        .executable(name: "carillon", targets: ["CLI"]),
        .executable(name: "carillon-bench", targets: ["Benchmarks"]),
    ],
    targets: [
        cLibrary("CUV", "libuv", apt: "libuv1-dev"),
        cLibrary("CPQ", "libpq", apt: "libpq-dev"),
        cLibrary("CRDKafka", "rdkafka", apt: "librdkafka-dev"),
        cLibrary("CCurl", "libcurl", apt: "libcurl4-openssl-dev"),
        cLibrary("CNGHTTP2", "libnghttp2", apt: "libnghttp2-dev"),
        cLibrary("COpenSSL", "openssl", apt: "libssl-dev"),
        cLibrary("CExpat", "expat", apt: "libexpat1-dev"),
        cLibrary("CPCRE2", "libpcre2-8", apt: "libpcre2-dev"),
        cLibrary("CZlib", "zlib", apt: "zlib1g-dev"),
        cLibrary("CZstd", "libzstd", apt: "libzstd-dev"),

        library("JSON", []),
        library("Observability", ["JSON"]),
        library("Settings", []),
        library("EventLoop", ["CUV", "JSON", "Observability"]),
        library("Postgres", ["CPQ", "EventLoop", "JSON", "Observability"]),
        library("Kafka", ["CRDKafka", "EventLoop", "JSON", "Observability", "Settings"]),
        library("HTTP2", ["CNGHTTP2", "JSON", "Observability"]),
        library(
            "HTTPTransport",
            ["CCurl", "COpenSSL", "HTTP2", "EventLoop", "JSON", "Observability"]
        ),
        library("Compression", ["CZlib", "CZstd", "JSON", "Observability"]),
        library(
            "HTTPServer",
            [
                "COpenSSL", "Compression", "HTTP2", "EventLoop", "JSON", "Observability",
                "Settings",
            ]
        ),
        library("Cryptography", ["COpenSSL", "JSON", "Observability", "Settings"]),
        library("XML", ["CExpat", "JSON", "Observability"]),
        library("RegularExpressions", ["CPCRE2", "JSON", "Observability"]),
        library("JSONSchema", ["RegularExpressions", "JSON", "Observability"]),
        library("ServiceKit", ["EventLoop", "HTTPServer", "JSON", "Observability", "Settings"]),
        library("PushCore", ["JSON", "Observability"]),
        library("RemoteConfig", ["PushCore", "RegularExpressions", "JSON", "Observability"]),
        library("PushEvents", ["PushCore", "JSON", "Observability"]),
        library(
            "PushStorage",
            ["PushCore", "Postgres", "Cryptography", "JSON", "Observability", "Settings"]
        ),
        library(
            "PushProviders",
            [
                "PushCore", "HTTPTransport", "Cryptography", "JSON", "Observability", "Settings",
            ]
        ),
        library(
            "Outbox",
            [
                // Providers: content is judged by what renders it.
                "PushCore", "PushStorage", "PushEvents", "PushProviders", "Cryptography", "Kafka",
                "ServiceKit", "EventLoop", "JSON", "Observability",
            ]
        ),

        library(
            "Apps",
            ["PushStorage", "PushCore", "Cryptography", "EventLoop", "JSON", "Observability"]
        ),
        library(
            "Door",
            [
                "Apps", "HTTPServer", "PushStorage", "PushCore", "Cryptography", "ServiceKit",
                "EventLoop", "JSON", "Observability", "Settings",
            ]
        ),

        library(
            "Logins",
            [
                "PushStorage", "PushCore", "HTTPTransport", "Cryptography", "EventLoop", "JSON",
                "Observability", "Settings",
            ]
        ),

        service(
            "Registration",
            ["HTTPServer", "Door", "Outbox", "PushStorage", "PushEvents", "Kafka"]
        ),
        service(
            "Dispatcher",
            ["Outbox", "PushEvents", "Kafka", "PushStorage", "PushProviders"],
            exclude: ["RULES.md"]
        ),
        service(
            "ConfigWatcher",
            [
                "HTTPServer", "Door", "Outbox", "RemoteConfig", "PushStorage", "PushEvents",
                "Kafka",
            ]
        ),
        service(
            "SecurePayload",
            [
                "HTTPServer", "Door", "Outbox", "Logins", "PushStorage", "PushEvents", "Kafka",
                "HTTPTransport",
            ]
        ),
        service(
            "Ingest",
            [
                "HTTPServer", "Door", "Outbox", "JSONSchema", "PushStorage", "PushEvents", "Kafka",
            ]
        ),
        service("Simulator", ["HTTPServer", "Kafka"]),
        service(
            "CLI",
            [
                "RemoteConfig", "PushStorage", "PushEvents", "Kafka", "PushProviders", "Logins",
                "JSONSchema", "HTTPTransport",
            ]
        ),

        .target(
            name: "Support",
            dependencies: [
                "JSON", "Observability", "EventLoop", "Postgres", "Kafka", "HTTPTransport",
                "HTTPServer", "Cryptography", "PushCore", "PushStorage",
            ],
            path: "Tests/Support",
            swiftSettings: settings
        ),
        .executableTarget(
            name: "Benchmarks",
            dependencies: [
                "Cryptography", "EventLoop", "HTTPServer", "HTTPTransport", "JSON", "Kafka",
                "Postgres", "PushCore", "PushStorage",
            ],
            path: "Tests/Benchmarks",
            exclude: [
                "config_clients.py", "hostile.py", "kafka_producer.c", "record.json",
                "orjson_figures.py", "peers.py", "postgres.sql", "secure_guesses.py",
                "secure_readers.py", "secure_turns.py", "sync_requests.py",
            ],
            swiftSettings: settings
        ),
        tests("JSONTests", ["JSON"]),
        tests("EventLoopTests", ["EventLoop"]),
        tests("PostgresTests", ["Postgres", "EventLoop", "JSON", "Observability"]),
        tests("KafkaTests", ["Kafka", "EventLoop", "Observability"]),
        tests("CompressionTests", ["Compression"]),
        tests(
            "HTTPServerTests",
            [
                "HTTPServer", "Compression", "HTTP2", "HTTPTransport", "EventLoop", "Cryptography",
                "JSON", "Observability",
            ],
            exclude: ["h11_verdicts.py", "h2_attacks.py"]
        ),
        tests(
            "HTTPTransportTests",
            ["HTTPTransport", "HTTPServer", "EventLoop", "Cryptography", "Observability"]
        ),
        tests("CryptographyTests", ["Cryptography", "JSON"]),
        tests(
            "LoginsTests",
            [
                "Logins", "PushStorage", "HTTPTransport", "HTTPServer", "PushCore", "Cryptography",
                "EventLoop", "Observability", "Settings", "JSON",
            ]
        ),
        tests("XMLTests", ["XML"]),
        tests("RegularExpressionsTests", ["RegularExpressions"]),
        tests(
            "RemoteConfigTests",
            ["RemoteConfig", "RegularExpressions", "Cryptography", "PushCore", "JSON", "XML"],
            exclude: ["conditions.py"]
        ),
        tests(
            "JSONSchemaTests",
            ["JSONSchema", "RegularExpressions", "JSON"],
            exclude: ["schemas.py"]
        ),
        tests(
            "IngestTests",
            [
                "Ingest", "JSONSchema", "Apps", "Door", "HTTPServer", "PushStorage", "PushEvents",
                "PushCore", "Kafka", "Cryptography", "EventLoop", "Observability", "JSON",
            ]
        ),
        tests("SimulatorTests", ["Simulator", "HTTPServer", "PushCore", "Cryptography", "JSON"]),
        tests("PushCoreTests", ["PushCore", "PushEvents", "JSON"]),
        tests(
            "PushProvidersTests",
            [
                "PushProviders", "PushCore", "HTTPTransport", "HTTPServer", "EventLoop",
                "Cryptography", "JSON", "Observability",
            ]
        ),
        tests("ServiceKitTests", ["ServiceKit", "EventLoop", "Observability"]),
        tests(
            "OutboxTests",
            ["Outbox", "PushStorage", "PushEvents", "PushCore", "EventLoop", "JSON"]
        ),
        tests(
            "SettingsTests",
            [
                "Settings", "ServiceKit", "Kafka", "Registration", "Dispatcher", "ConfigWatcher",
                "SecurePayload", "Ingest", "Simulator", "CLI",
            ]
        ),
        tests(
            "DispatcherTests",
            [
                "Dispatcher", "PushEvents", "PushStorage", "PushProviders", "PushCore", "Kafka",
                "ServiceKit", "EventLoop", "Observability", "JSON",
            ]
        ),
        tests(
            "DoorTests",
            [
                "Door", "Apps", "HTTPServer", "PushStorage", "PushCore", "Cryptography",
                "EventLoop", "Observability", "JSON",
            ]
        ),
        tests(
            "RegistrationTests",
            [
                "Registration", "Apps", "Door", "HTTPServer", "Compression", "PushStorage",
                "PushCore", "Cryptography", "JSON",
            ]
        ),
        tests(
            "ConfigWatcherTests",
            [
                "ConfigWatcher", "RemoteConfig", "Door", "HTTPServer", "PushStorage", "PushCore",
                "EventLoop", "JSON", "Observability",
            ]
        ),
        tests(
            "SecurePayloadTests",
            [
                "SecurePayload", "Logins", "Door", "HTTPServer", "PushStorage", "PushEvents",
                "PushCore", "Cryptography", "XML", "EventLoop", "JSON", "Observability",
            ]
        ),
        tests(
            "CLITests",
            [
                "CLI", "JSONSchema", "Kafka", "PushEvents", "PushStorage", "PushCore", "ServiceKit",
                "EventLoop", "JSON", "Settings",
            ]
        ),
        tests(
            "IntegrationTests",
            [
                "Outbox", "PushStorage", "PushEvents", "PushCore", "Postgres", "Kafka",
                "ServiceKit",
                "EventLoop", "JSON", "JSONSchema", "Cryptography", "Observability",
            ]
        ),
        tests(
            "EndToEndTests",
            [
                "PushCore", "JSON", "Kafka", "Cryptography", "Compression", "HTTPServer",
                "EventLoop",
            ],
            exclude: [
                "Forms", "Go", "Java", "JavaScript", "cognito_client.py", "firebase_client.py",
                "ingest_client.py", "ingest_hostile.py", "ingest_proxy.py",
                "rights-ingest.md", "leancloud_client.py", "rights.md",
                "rights-config.md", "rights-secure.md", "secure_client.py",
            ]
        ),
    ],
    swiftLanguageModes: [.v6]
)

if let chosenTests {
    package.targets.removeAll { $0.type == .test && !chosenTests.contains($0.name) }
}
