// swift-tools-version: 6.2
import PackageDescription

// A package of its own, to be copied into an app: it depends only on Foundation.

let settings: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .strictMemorySafety(),
    .treatAllWarnings(as: .error),
]

let package = Package(
    name: "IngestClient",
    platforms: [.macOS(.v13), .iOS(.v16), .tvOS(.v16), .watchOS(.v9)],
    products: [
        .library(name: "CarillonIngest", targets: ["CarillonIngest"]),
        .executable(name: "ingest-example", targets: ["IngestExample"]),
    ],
    targets: [
        .target(name: "CarillonIngest", swiftSettings: settings),
        .executableTarget(
            name: "IngestExample",
            dependencies: ["CarillonIngest"],
            swiftSettings: settings
        ),
    ]
)
