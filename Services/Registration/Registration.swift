@main
struct Registration {
    static func main() async {}
}
