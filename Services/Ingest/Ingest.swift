import ServiceKit

@main
struct Ingest {
    static func main() async {}
}
