import EventLoop
import Support
import Testing

@testable import HTTPTransport

@Suite(.timeLimit(.minutes(1))) struct HostPolicies {
    @Test("A channel URI leads only to allowed hosts (promise 10)")
    func verdicts() throws {
        let policy = try HostPolicy([".notify.windows.com", "exact.example", "sim:8443/wns/"])
        let cases: [(String, Bool)] = [
            ("https://db5p.notify.windows.com/?token=A%2b", true),
            ("https://DB5P.Notify.Windows.COM/x", true),
            ("https://db5p.notify.windows.com:443/x", true),
            ("https://db5p.notify.windows.com:8443/x", false),
            ("http://db5p.notify.windows.com/x", false),
            ("https://notify.windows.com/x", false),
            ("https://evilnotify.windows.com/x", false),
            ("https://db5p.notify.windows.com.evil.example/x", false),
            ("https://db5p.notify.windows.com./x", false),
            ("https://db5p.notify.windows.com@evil.example/x", false),
            ("https://evil.example/.notify.windows.com", false),
            ("https://evil.example#.notify.windows.com", false),
            ("https://exact.example/", true),
            ("https://a.exact.example/", false),
            ("https://sim:8443/wns/1", true),
            ("https://sim:8443/wns", false),
            ("https://sim:8443/other", false),
            ("https://sim:8443/wns/../credentials", false),
            ("https://sim:8443/wns/%2e%2e/credentials", false),
            ("https://sim:8444/wns/1", false),
            ("https://127.0.0.1/", false), ("file:///etc/passwd", false), ("", false),
            ("https://", false), ("nonsense", false),
        ]
        for (url, isPermitted) in cases {
            #expect(policy.permits(url) == isPermitted, "\(url)")
        }
    }

    @Test("Plain http must be allowed explicitly, and then for its own port")
    func plainHTTP() throws {
        let policy = try HostPolicy([".notify.live.net", "a.example"], allowsPlainHTTP: true)
        for (url, isPermitted) in [
            ("http://am3.notify.live.net/x", true), ("https://am3.notify.live.net/x", true),
            ("http://am3.notify.live.net:8080/x", false), ("http://a.example/", true),
            ("https://am3.notify.live.net:80/x", false), ("http://evil.example/", false),
            ("ftp://am3.notify.live.net/x", false),
        ] {
            #expect(policy.permits(url) == isPermitted, "\(url)")
        }
    }

    @Test("Only an exact entry may have a private address")
    func addresses() throws {
        let policy = try HostPolicy([".example", "here.example:443"])
        let parts = try #require(URLParts("https://here.example/"))
        #expect(policy.verdict(on: parts) == .anyAddress)
        let other = try #require(URLParts("https://there.example/"))
        #expect(policy.verdict(on: other) == .publicAddressOnly)
    }

    @Test(
        "An invalid entry is refused by its name",
        arguments: [
            "", ".", "https://a.example", "a.example:0", "a.example:x", "a:1/path", "a.example/x/",
            "user@a.example", ".a:1", "a b", "[::1",
        ]
    )
    func invalid(entry: String) {
        #expect(throws: HostPolicy.InvalidEntry(entry: entry)) { try HostPolicy([entry]) }
    }

    @Test("A name that resolves to this machine is called only if its exact entry exists")
    func privateAddress() async throws {
        let loop = try EventLoop(name: "client")
        // libcurl resolves every name below localhost to the loopback address by itself.
        let url = "https://channel.localhost/"
        let client = try HTTPClient(
            HTTPTransportConfiguration(allowedHosts: try HostPolicy([".localhost"])),
            on: loop
        )
        let result = await Task { () -> HTTPTransportError? in
            do throws(HTTPTransportError) {
                _ = try await client.call(HTTPRequest(url: url))
                return nil
            } catch {
                return error
            }
        }.value
        #expect(result?.kind == .hostRefused)
        #expect(result?.requestWasNotSent == true)
        #expect(result?.isRetryable == false)
        try await loop.onLoop { client.close() }
        await loop.stop()
    }
}

@Suite(.timeLimit(.minutes(1))) struct AddressRanges {
    @Test(
        "Private and reserved addresses are not public",
        arguments: [
            "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1",
            "172.31.255.255", "192.168.1.1", "192.0.2.1", "198.18.0.1", "203.0.113.9", "224.0.0.1",
            "255.255.255.255",
        ]
    )
    func reserved(address: String) {
        #expect(!AddressRange.isPublic(ipv4: ipv4(address)))
        let mapped = [UInt8](repeating: 0, count: 10) + [0xFF, 0xFF] + bytes(address)
        #expect(!AddressRange.isPublic(ipv6: mapped))
        let translated =
            [0x00, 0x64, 0xFF, 0x9B] + [UInt8](repeating: 0, count: 8) + bytes(address)
        #expect(!AddressRange.isPublic(ipv6: translated))
        let sixToFour = [0x20, 0x02] + bytes(address) + [UInt8](repeating: 0, count: 10)
        #expect(!AddressRange.isPublic(ipv6: sixToFour))
    }

    @Test(
        "Addresses of the Internet are public",
        arguments: ["8.8.8.8", "100.63.0.1", "172.15.0.1", "172.32.0.1", "13.107.4.50"]
    )
    func open(address: String) {
        #expect(AddressRange.isPublic(ipv4: ipv4(address)))
    }

    @Test("Only global unicast addresses are public in IPv6")
    func ipv6() {
        func address(_ start: [UInt8]) -> [UInt8] {
            start + [UInt8](repeating: 0, count: 15 - start.count) + [1]
        }
        let cases: [([UInt8], Bool)] = [
            ([0x26, 0x20, 0x01, 0xEC], true), ([0x20, 0x01, 0x48, 0x60], true), ([], false),
            ([0xFE, 0x80], false), ([0xFC], false), ([0xFD, 0x12], false), ([0xFF, 0x02], false),
            ([0x20, 0x01, 0x0D, 0xB8], false), ([0x20, 0x01, 0, 0], false),
        ]
        for (start, isPublic) in cases {
            #expect(AddressRange.isPublic(ipv6: address(start)) == isPublic, "\(start)")
        }
        #expect(!AddressRange.isPublic(ipv6: [1, 2, 3]))
    }

    private func bytes(_ text: String) -> [UInt8] {
        text.split(separator: ".").compactMap { UInt8($0) }
    }

    private func ipv4(_ text: String) -> UInt32 {
        bytes(text).reduce(0) { $0 << 8 | UInt32($1) }
    }
}
