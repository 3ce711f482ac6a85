@main
struct Simulator {
    static func main() async {}
}
