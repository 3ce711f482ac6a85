import JSON
import PushCore
import RemoteConfig
import Support
import Testing

/// Requests as the SDKs send them.
@Suite(.timeLimit(.minutes(1)))
struct ConfigFetchTests {
    @Test func android() throws {
        let fetch = try ConfigFetch(
            body: Array(
                """
                {"appInstanceId":"cVQ3nFqLQJ2","appInstanceIdToken":"eyJ","appId":"1:7:android:ab",
                "countryCode":"DE","languageCode":"de-DE","platformVersion":"34",
                "timeZone":"Europe/Berlin","appVersion":"1.10","appBuild":"110",
                "packageName":"com.example","sdkVersion":"22.0.0",
                "analyticsUserProperties":{"plan":"gold"},
                "firstOpenTime":"2026-02-01T10:00:00.000Z","customSignals":{"age":"31"}}
                """.utf8
            )
        )
        #expect(fetch.appInstanceID == "cVQ3nFqLQJ2")
        #expect(fetch.appID == "1:7:android:ab")
        #expect(fetch.countryCode == "DE")
        #expect(fetch.languageCode == "de-DE")
        #expect(fetch.appVersion == "1.10")
        #expect(fetch.appBuild == "110")
        #expect(fetch.userProperties == ["plan": "gold"])
        #expect(fetch.customSignals == ["age": "31"])
        #expect(fetch.firstOpenTime == Instant(iso8601: "2026-02-01T10:00:00Z"))
    }

    @Test func iOS() throws {
        let fetch = try ConfigFetch(
            body: Array(
                """
                {app_instance_id:'cVQ3nFqLQJ2', app_instance_id_token:'eyJ', app_id:'1:7:ios:ab', \
                country_code:'US', language_code:'en-US', platform_version:'18.1', \
                time_zone:'America/New_York', package_name:'it's {mine}, 'yes'', app_version:'1.10', \
                app_build:'7', sdk_version:'11.0.0', custom_signals:{"a":"it's","b":"x', y:'}"}, \
                analytics_user_properties:{"plan":"gold"}}
                """.utf8
            )
        )
        #expect(fetch.appInstanceID == "cVQ3nFqLQJ2")
        #expect(fetch.appID == "1:7:ios:ab")
        #expect(fetch.countryCode == "US")
        #expect(fetch.appVersion == "1.10")
        #expect(fetch.appBuild == "7")
        #expect(fetch.customSignals == ["a": "it's", "b": "x', y:'}"])
        #expect(fetch.userProperties == ["plan": "gold"])
    }

    @Test func web() throws {
        let fetch = try ConfigFetch(
            body: Array(
                """
                {"sdk_version":"11.0.0","app_instance_id":"f","app_instance_id_token":"eyJ",
                "app_id":"1:7:web:ab","language_code":"en-US","custom_signals":{"n":3,"gone":null}}
                """.utf8
            )
        )
        #expect(fetch.appInstanceID == "f")
        #expect(fetch.customSignals["n"] == 3)
    }

    @Test(arguments: [
        (
            #"{"project":"7","namespace":"firebase","lastKnownVersionNumber":"8","appId":"1:7:web:a"}"#,
            8
        ),
        ("{project:'7', namespace:'firebase', lastKnownVersionNumber:'8', appId:'1:7:ios:a'}", 8),
        (#"{"lastKnownVersionNumber":8}"#, 8), (#"{"lastKnownVersionNumber":0}"#, 0), ("{}", -1),
        (#"{"lastKnownVersionNumber":"-1"}"#, -1), (#"{"lastKnownVersionNumber":"x"}"#, -1),
        (#"{"lastKnownVersionNumber":"99999999999999999999"}"#, -1),
        (#"{"lastKnownVersionNumber":9007199254740993}"#, -1),
    ])
    func streams(body: String, version: Int) throws {
        #expect(try ConfigFetch(body: Array(body.utf8)).lastKnownVersion ?? -1 == version)
    }

    @Test(arguments: [
        ("{}", "{}"), (" { } ", "{}"), ("{a:'b'}", #"{"a":"b"}"#), ("{a:''}", #"{"a":""}"#),
        ("{ a : 'b' , c : 'd' }", #"{"a":"b","c":"d"}"#), ("{'a':'b'}", #"{"a":"b"}"#),
        (#"{"a":'b'}"#, #"{"a":"b"}"#), (#"{a:"b\n"}"#, #"{"a":"b\n"}"#),
        (#"{a:'b\n'}"#, #"{"a":"b\\n"}"#), ("{a:'it's'}", #"{"a":"it's"}"#),
        ("{a:'''}", #"{"a":"'"}"#), ("{a:''',b:'c'}", #"{"a":"'","b":"c"}"#),
        (
            #"{a:1,b:true,c:null,d:[1,2],e:{"f":"}"}}"#,
            #"{"a":1,"b":true,"c":null,"d":[1,2],"e":{"f":"}"}}"#
        ),
        (#"{a:'x"y'}"#, #"{"a":"x\"y"}"#), ("{a:'\n'}", #"{"a":"\n"}"#),
        ("{a:'1', a:'2'}", #"{"a":"2"}"#),
        (#"{a:{"b":"\"}'"},c:'d'}"#, #"{"a":{"b":"\"}'"},"c":"d"}"#),
    ])
    func relaxed(text: String, strict: String) throws {
        #expect(try RelaxedJSON.parse(Array(text.utf8)) == JSONValue.parse(strict))
    }

    @Test(arguments: [
        "", " ", "[]", "'a'", "{", "{a", "{a:", "{a:}", "{a:'b", "{a:'b'", "{a:'b',}", "{a:'b'}}",
        "{a:'b' c}",
        "{:'b'}", "{a b:'c'}", "{a:b}", "{a:{b:'c'}}", "{a:[1,]}", "{a:\"b}", "{a:'b'} x", "{,}",
        "{a:{\"b\":1}",
        "{'a:'b'}",
    ])
    func notEvenRelaxed(text: String) {
        #expect(throws: RelaxedJSONError.self) { try RelaxedJSON.parse(Array(text.utf8)) }
        #expect(throws: ConfigFetchError.self) { try ConfigFetch(body: Array(text.utf8)) }
    }

    @Test func invalidUTF8IsRefused() {
        #expect(throws: RelaxedJSONError.self) {
            try RelaxedJSON.parse(Array("{a:'".utf8) + [0xFF] + Array("'}".utf8))
        }
    }

    @Test func limits() throws {
        func signals(_ count: Int, key: Int = 1, value: Int = 1) -> String {
            let list = (0..<count).map { index in
                let text = String(repeating: "ä", count: max(0, key - 3)) + String(index + 100)
                return "\"\(text)\":\"\(String(repeating: "😀", count: value))\""
            }
            return "{\"customSignals\":{\(list.joined(separator: ","))}}"
        }
        _ = try ConfigFetch(body: Array(signals(100).utf8))
        _ = try ConfigFetch(body: Array(signals(2, key: 250, value: 500).utf8))
        for body in [
            signals(101), signals(1, key: 251), signals(1, value: 501),
            #"{"appId":"\#(String(repeating: "x", count: 1025))"}"#,
            #"{"appInstanceId":"a\u0000"}"#, #"{"languageCode":"\u0000"}"#,
            #"{"countryCode":"\#(String(repeating: "ä", count: 513))"}"#,
            String(repeating: "[", count: 1000) + String(repeating: "]", count: 1000),
            "{\"x\":" + String(repeating: "[", count: 17) + String(repeating: "]", count: 17) + "}",
            "{}" + String(repeating: " ", count: ConfigFetch.maximumBytes - 1),
        ] {
            #expect(throws: ConfigFetchError.self) { try ConfigFetch(body: Array(body.utf8)) }
        }
        _ = try ConfigFetch(
            body: Array(("{}" + String(repeating: " ", count: ConfigFetch.maximumBytes - 2)).utf8)
        )
    }

    /// Bodies of the maximum size that a parser reads slowly unless it is linear.
    @Test(arguments: [
        ("{a:'", "'", ""), ("{a:'", "' ", ""), ("{a:'", " ", "'}"), ("{a:'", "','", ""),
        ("{", "a:'',", ""),
        ("{a:", "{", ""), ("{a:", "[\"", ""), ("{a:\"", "\\", ""), ("{", "'", ""),
        ("{a:'", "'x,", "'}"),
        ("{\"", "a", "\":'x'}"), ("{a:'e", "\u{301}", "'}"), ("{a:'", "' \t", "'}"),
    ])
    func readingIsLinear(start: String, middle: String, end: String) {
        var body = Array(start.utf8)
        while body.count < 250_000 { body += Array(middle.utf8) }
        body += Array(end.utf8)
        var best = Duration.seconds(1000)
        for _ in 0..<3 {
            best = min(best, processorTime { _ = try? ConfigFetch(body: body) })
        }
        #expect(best < .milliseconds(300))
    }
}
