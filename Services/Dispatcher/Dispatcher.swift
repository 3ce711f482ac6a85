@main
struct Dispatcher {
    static func main() async {}
}
