@main
struct CLI {
    static func main() async {}
}
