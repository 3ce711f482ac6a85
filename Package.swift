// swift-tools-version: 6.2
import PackageDescription

// The edges between these targets are the architecture: a module may import what it lists here, and
// `deploy/check` compares every import with it. There are no Swift packages: each dependency is a C
// library that Debian patches, found by pkg-config.

let settings: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .strictMemorySafety(),
    .treatAllWarnings(as: .error),
]

/// Tests are built beside the release, and are not optimized themselves, which would take minutes;
/// the code that they call is optimized. Nothing imports them, so that their interfaces are not made
/// first, and a failure names its place without a debugger. Benchmarks are not tests.
let testSettings =
    settings + [
        .unsafeFlags(
            ["-Onone", "-Xfrontend", "-gnone", "-no-emit-module-separately-wmo"],
            .when(configuration: .release)
        )
    ]

/// With `CARILLON_BUILD=quick` only these modules are optimized, as optimizing all is a third of a
/// build: so are the tests and the demo built, but never an image or what is measured. They do most
/// of the services' work in tests, and tests bound the time of patterns, schemas and parsers.
let optimizedModules: Set<String> = [
    "Compression", "Cryptography", "EventLoop", "HTTP2", "HTTPServer", "HTTPTransport",
    "Importing", "JSON", "JSONSchema", "Kafka", "Observability", "Postgres", "PushCore",
    "RealmSync", "RegularExpressions", "RemoteConfig", "Support", "XML",
]

func settings(of module: String) -> [SwiftSetting] {
    guard Context.environment["CARILLON_BUILD"] == "quick", !optimizedModules.contains(module)
    else { return settings }
    return settings
        + [.unsafeFlags(["-Onone", "-Xfrontend", "-gnone"], .when(configuration: .release))]
}

func library(
    _ name: String,
    _ dependencies: [Target.Dependency],
    exclude: [String] = [],
    resources: [Resource] = []
) -> Target {
    .target(
        name: name,
        dependencies: dependencies,
        path: "Shared/\(name)",
        exclude: exclude,
        resources: resources,
        swiftSettings: settings(of: name)
    )
}

/// Makes the target of the tables of one subject.
func storage(_ name: String, _ others: [Target.Dependency] = []) -> Target {
    library(
        name,
        ["Storage", "PushCore", "Postgres", "Cryptography", "JSON", "Observability"] + others
    )
}

func cLibrary(_ name: String, _ pkgConfig: String?, apt: String) -> Target {
    .systemLibrary(
        name: name,
        path: "Shared/\(name)",
        pkgConfig: pkgConfig,
        providers: [.apt([apt])]
    )
}

/// The modules that every service may use besides its own.
let serviceModules: [Target.Dependency] = [
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
        dependencies: serviceModules + dependencies,
        path: "Services/\(name)",
        exclude: exclude,
        swiftSettings: settings(of: name)
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

/// `CARILLON_TESTS=DispatcherTests,JSONTests swift build --build-tests` builds only these test
/// targets, which saves minutes after a change far below.
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
        .executable(name: "carillon-connection", targets: ["Connection"]),
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
        // Debian's package has no file for pkg-config.
        cLibrary("CWslay", nil, apt: "libwslay-dev"),

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
        library("RealmSync", ["Compression", "JSON", "Observability"]),
        library(
            "HTTPServer",
            [
                "COpenSSL", "CWslay", "Compression", "HTTP2", "EventLoop", "JSON", "Observability",
                "Settings",
            ]
        ),
        library("Cryptography", ["COpenSSL", "JSON", "Observability", "Settings"]),
        library("XML", ["CExpat", "JSON", "Observability"]),
        library("RegularExpressions", ["CPCRE2", "JSON", "Observability"]),
        library("JSONSchema", ["RegularExpressions", "JSON", "Observability"]),
        library("ServiceKit", ["EventLoop", "HTTPServer", "JSON", "Observability", "Settings"]),
        library("PushCore", ["JSON", "Observability"]),
        library("AzureHub", ["PushCore", "XML", "JSON", "Observability"]),
        library("RemoteConfig", ["PushCore", "RegularExpressions", "JSON", "Observability"]),
        library("PushEvents", ["PushCore", "JSON", "Observability"]),
        // What commands and pages know about dead letters; only reads.
        library(
            "DeadLetters",
            [
                "PushEvents", "PushCore", "Kafka", "Cryptography", "EventLoop", "JSON",
                "Observability",
            ]
        ),
        // The base of all stores: connections, the schema, apps, the audit trail, the outbox.
        library(
            "Storage",
            ["PushCore", "Postgres", "Cryptography", "JSON", "Observability", "Settings"],
            // The tables after all migrations, for readers.
            exclude: ["Schema/schema.sql"],
            // They are in the code, not in a bundle: a container has only the executable.
            resources: [.embedInCode("Schema/Migrations")]
        ),
        storage("InstallationStorage"),
        storage("PushStorage", ["InstallationStorage"]),
        // Moves installations in from the exports of other platforms.
        library(
            "Importing",
            [
                "Storage", "InstallationStorage", "PushCore", "AzureHub", "Postgres", "Compression",
                "Cryptography", "XML", "JSON", "Observability",
            ]
        ),
        storage("ConfigStorage", ["PushEvents"]),
        storage("SyncStorage"),
        storage("IngestStorage", ["PushStorage"]),
        storage("SecureStorage", ["PushStorage"]),
        storage("ConnectionStorage", ["PushStorage", "PushEvents"]),
        // Jobs on the tables of all subjects: deleting an app, erasing a person, retention.
        storage(
            "StorageAdmin",
            [
                "InstallationStorage", "PushStorage", "IngestStorage", "SecureStorage",
                "ConnectionStorage",
            ]
        ),
        library(
            "PushProviders",
            [
                "PushCore", "HTTPTransport", "Cryptography", "JSON", "Observability", "Settings",
            ]
        ),
        // Why a device got a push, or not; only reads.
        storage(
            "Explain",
            ["InstallationStorage", "PushStorage", "ConnectionStorage", "PushProviders"]
        ),
        library(
            "Outbox",
            [
                // PushProviders is needed as its renderers check the size of content.
                "PushCore", "Storage", "PushStorage", "PushEvents", "PushProviders", "Cryptography",
                "Kafka",
                "ServiceKit", "EventLoop", "JSON", "Observability",
            ]
        ),

        library(
            "Apps",
            ["Storage", "PushCore", "Cryptography", "EventLoop", "JSON", "Observability"]
        ),
        library(
            "Gateway",
            [
                "Apps", "HTTPServer", "Storage", "PushCore", "Cryptography", "ServiceKit",
                "EventLoop", "JSON", "Observability", "Settings",
            ]
        ),

        library(
            "Logins",
            [
                "Storage", "Postgres", "PushCore", "HTTPTransport", "Cryptography", "EventLoop",
                "JSON",
                "Observability", "Settings",
            ]
        ),

        library(
            "ServiceShell",
            [
                "Gateway", "Apps", "Outbox", "PushEvents", "Storage", "PushCore", "Kafka",
                "ServiceKit", "HTTPServer", "EventLoop", "Cryptography", "JSON", "Observability",
                "Settings",
            ]
        ),

        library(
            "Console",
            [
                "Gateway", "Apps", "Logins", "Outbox", "RemoteConfig", "PushEvents", "DeadLetters",
                "Storage", "Kafka",
                "InstallationStorage", "PushStorage", "ConfigStorage", "SyncStorage",
                "SecureStorage", "IngestStorage", "ConnectionStorage", "Explain", "Importing",
                "PushCore", "PushProviders", "HTTPServer", "EventLoop", "Cryptography", "JSON",
                "Observability",
            ],
            // They are in the code, not in a bundle: a container has only the executable.
            resources: [.embedInCode("Static")]
        ),

        service(
            "Registration",
            [
                "Console", "ServiceShell", "HTTPServer", "Gateway", "Outbox", "Storage",
                "InstallationStorage", "PushStorage", "SyncStorage", "StorageAdmin", "PushEvents",
                "Explain", "AzureHub", "Logins", "Importing", "DeadLetters", "PushProviders",
            ]
        ),
        service(
            "Dispatcher",
            [
                "ServiceShell", "Outbox", "PushEvents", "Kafka", "Storage", "PushStorage",
                "SyncStorage", "ConnectionStorage", "StorageAdmin", "PushProviders",
            ],
            exclude: ["RULES.md"]
        ),
        service(
            "ConfigWatcher",
            [
                "ServiceShell", "HTTPServer", "Gateway", "RemoteConfig", "Storage", "ConfigStorage",
                "PushEvents",
                "Kafka",
            ]
        ),
        service(
            "SecurePayload",
            [
                "ServiceShell", "HTTPServer", "Gateway", "Outbox", "Logins", "Storage",
                "InstallationStorage", "PushStorage", "SecureStorage",
                "PushEvents", "HTTPTransport",
            ]
        ),
        service(
            "Ingest",
            [
                "ServiceShell", "HTTPServer", "Apps", "Gateway", "Outbox", "JSONSchema",
                "Storage", "IngestStorage", "PushEvents", "Kafka", "Logins", "RealmSync",
            ]
        ),
        service(
            "Connection",
            [
                "ServiceShell", "HTTPServer", "Gateway", "Outbox", "Storage", "InstallationStorage",
                "ConnectionStorage", "PushEvents",
            ]
        ),
        service("Simulator", ["HTTPServer", "Kafka"]),
        service(
            "CLI",
            [
                "RemoteConfig", "Storage", "InstallationStorage", "PushStorage", "ConfigStorage",
                "SyncStorage", "IngestStorage", "SecureStorage", "ConnectionStorage",
                "StorageAdmin", "PushEvents", "Kafka", "PushProviders", "Logins",
                "JSONSchema", "HTTPTransport", "Explain", "Importing", "DeadLetters",
            ]
        ),

        .target(
            name: "Support",
            dependencies: [
                "CPQ", "JSON", "Observability", "EventLoop", "Postgres", "Kafka", "HTTPTransport",
                "HTTPServer", "Cryptography", "PushCore", "Storage", "PushStorage", "StorageAdmin",
                "PushProviders",
            ],
            path: "Tests/Support",
            swiftSettings: settings(of: "Support")
        ),
        .executableTarget(
            name: "Benchmarks",
            dependencies: [
                "Cryptography", "EventLoop", "HTTPServer", "HTTPTransport", "JSON", "Kafka",
                "Postgres", "PushCore", "Storage", "InstallationStorage", "PushStorage",
                "StorageAdmin",
            ],
            path: "Tests/Benchmarks",
            exclude: [
                "config_clients.py", "connection_clients.py", "console_pages.py", "hostile.py",
                "idle_sockets.py", "kafka_producer.c",
                "import_lines.py", "peak_memory.py", "record.json", "orjson_figures.py", "peers.py",
                "postgres.sql",
                "realm_clients.py", "secure_guesses.py", "secure_readers.py", "secure_turns.py",
                "sync_requests.py",
            ],
            swiftSettings: settings(of: "Benchmarks")
        ),
        tests("JSONTests", ["JSON"]),
        tests("EventLoopTests", ["EventLoop"]),
        tests("PostgresTests", ["Postgres", "EventLoop", "JSON", "Observability"]),
        tests("KafkaTests", ["Kafka", "EventLoop", "Observability"]),
        tests("CompressionTests", ["Compression"]),
        tests(
            "RealmSyncTests",
            ["RealmSync", "Compression", "JSON"],
            exclude: ["dialogue.json", "model_client.py", "vectors.json"]
        ),
        tests(
            "HTTPServerTests",
            [
                "HTTPServer", "Compression", "HTTP2", "HTTPTransport", "EventLoop", "Cryptography",
                "JSON", "Observability",
            ],
            exclude: ["h11_verdicts.py", "h2_attacks.py", "websocket_client.py"]
        ),
        tests(
            "HTTPTransportTests",
            ["HTTPTransport", "HTTPServer", "EventLoop", "Cryptography", "Observability"]
        ),
        tests("CryptographyTests", ["Cryptography", "JSON"]),
        tests(
            "LoginsTests",
            [
                "Logins", "HTTPTransport", "HTTPServer", "Storage", "PushCore", "Cryptography",
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
                "Ingest", "JSONSchema", "Apps", "Gateway", "HTTPServer", "Storage", "IngestStorage",
                "StorageAdmin", "PushEvents",
                "PushCore", "Kafka", "Cryptography", "EventLoop", "ServiceKit", "ServiceShell",
                "Observability", "JSON",
            ]
        ),
        tests(
            "DeadLettersTests",
            ["DeadLetters", "PushEvents", "PushCore", "Kafka", "EventLoop", "JSON"]
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
        tests("ServiceKitTests", ["ServiceKit", "EventLoop", "Observability", "Settings"]),
        tests(
            "OutboxTests",
            ["Outbox", "Storage", "PushStorage", "PushEvents", "PushCore", "EventLoop", "JSON"]
        ),
        tests(
            "SettingsTests",
            [
                "Settings", "ServiceKit", "ServiceShell", "Kafka", "Registration", "Dispatcher",
                "ConfigWatcher",
                "SecurePayload", "Ingest", "Connection", "Simulator", "CLI",
            ]
        ),
        tests(
            "DispatcherTests",
            [
                "Dispatcher", "PushEvents", "Storage", "InstallationStorage", "PushStorage",
                "ConnectionStorage", "PushProviders", "PushCore", "Kafka", "ServiceKit",
                "EventLoop", "Observability", "JSON",
            ]
        ),
        tests(
            "GatewayTests",
            [
                "Gateway", "Apps", "HTTPServer", "Storage", "PushCore", "Cryptography",
                "EventLoop", "Observability", "JSON",
            ]
        ),
        tests(
            "RegistrationTests",
            [
                "Registration", "Apps", "Gateway", "HTTPServer", "Compression", "PushStorage",
                "SyncStorage", "AzureHub",
                "PushCore", "Cryptography", "JSON",
            ]
        ),
        tests(
            "ConsoleTests",
            [
                "Console", "Cryptography", "HTTPServer", "PushCore", "JSON", "Logins", "Apps",
                "Gateway", "HTTPTransport", "InstallationStorage", "PushStorage", "Storage",
            ]
        ),
        tests(
            "ConfigWatcherTests",
            [
                "ConfigWatcher", "RemoteConfig", "Gateway", "HTTPServer", "ConfigStorage",
                "PushCore",
                "EventLoop", "JSON", "Observability",
            ]
        ),
        tests(
            "ConnectionTests",
            ["Connection", "ConnectionStorage", "HTTPServer", "PushCore", "Cryptography", "JSON"]
        ),
        tests(
            "SecurePayloadTests",
            [
                "SecurePayload", "Logins", "ServiceShell", "Gateway", "HTTPServer", "Storage",
                "SecureStorage",
                "PushEvents", "PushCore", "Cryptography", "XML", "EventLoop", "JSON",
                "Observability",
            ]
        ),
        tests(
            "ExplainTests",
            ["Explain", "PushStorage", "PushCore", "JSON"]
        ),
        tests(
            "ImportingTests",
            ["Importing", "InstallationStorage", "PushCore", "Compression", "JSON"]
        ),
        tests(
            "CLITests",
            [
                "CLI", "Explain", "JSONSchema", "Kafka", "PushEvents", "Storage", "PushStorage",
                "IngestStorage", "PushCore", "ServiceKit",
                "EventLoop", "JSON", "Settings",
            ],
            exclude: ["help.txt"]
        ),
        tests(
            "IntegrationTests",
            [
                "Outbox", "Logins", "Storage", "InstallationStorage", "PushStorage",
                "ConfigStorage",
                "SyncStorage", "IngestStorage", "SecureStorage", "ConnectionStorage",
                "StorageAdmin", "Explain", "Importing", "Connection", "HTTPServer", "PushEvents",
                "PushCore", "Postgres", "Kafka", "ServiceKit", "ServiceShell", "Compression",
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
                "schemathesis_alone.py",
                "ingest_client.py", "ingest_hostile.py", "ingest_proxy.py",
                "realm_hostile.py", "realm_proxy.py", "rights-ingest.md", "leancloud_client.py",
                "rights.md",
                "rights-config.md", "rights-console.md", "rights-secure.md", "secure_client.py",
            ]
        ),
    ],
    swiftLanguageModes: [.v6]
)

if let chosenTests {
    package.targets.removeAll { $0.type == .test && !chosenTests.contains($0.name) }
}
