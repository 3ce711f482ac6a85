import AzureHub
import HTTPServer
import JSON
import PushCore
import Testing

@testable import Registration

@Suite("Azure sends", .timeLimit(.minutes(1)))
struct HubMessageTests {
    private func message(_ headers: HTTPHeaders, _ body: String) throws -> HubMessage {
        try HubMessage(headers, body: Array(body.utf8))
    }

    @Test("Each format becomes its provider's own message, with its headers")
    func formats() throws {
        let apple = try message(
            [
                "ServiceBusNotification-Format": "apple", "apns-push-type": "background",
                "APNS-ID": "x", "Apns-Priority": "5",
                "ServiceBusNotification-Apns-Expiry": "2030-01-01T00:00:00",
            ],
            #"{"aps":{"content-available":1}}"#
        )
        #expect(
            apple.requests(to: .tags("a && b"), at: nil, templates: []) == [
                .init(
                    source: "carillon/azure/apple",
                    object: [
                        "expiration_time": "2030-01-01T00:00:00.000Z", "tags": "a && b",
                        "native": [
                            "apns": [
                                "headers": ["apns-push-type": "background", "apns-priority": "5"],
                                "payload": ["aps": ["content-available": 1]],
                            ]
                        ],
                        "platforms": ["apns"],
                    ]
                )
            ]
        )
        let v1 = try message(
            ["ServiceBusNotification-Format": "fcmV1"],
            #"{"message":{"data":{"a":"b"}}}"#
        )
        #expect(v1.content == .native(["fcm": ["message": ["data": ["a": "b"]]]]))
        #expect(
            v1.requests(to: .tags(nil), at: nil, templates: []).map(\.object) == [
                [
                    "native": ["fcm": ["message": ["data": ["a": "b"]]]], "platforms": ["fcm"],
                    "where": ["_azure.platform": ["$nin": ["gcm", "fcm"]]],
                ]
            ]
        )
        let toast = try message(
            ["ServiceBusNotification-Format": "windows", "X-WNS-Tag": "t"],
            "<?xml version=\"1.0\"?><toast/>"
        )
        #expect(
            toast.content
                == .native([
                    "wns": [
                        "type": "wns/toast", "headers": ["x-wns-tag": "t"],
                        "body": "<?xml version=\"1.0\"?><toast/>",
                    ]
                ])
        )
        let phone = try message(
            [
                "ServiceBusNotification-Format": "windowsphone", "X-WindowsPhone-Target": "toast",
                "X-NotificationClass": "2",
            ],
            "<wp:Notification/>"
        )
        #expect(
            phone.content
                == .native([
                    "mpns": [
                        "headers": ["x-windowsphone-target": "toast", "x-notificationclass": "2"],
                        "body": "<wp:Notification/>",
                    ]
                ])
        )
    }

    @Test(
        "An expiry is read as .NET and Java write it",
        arguments: [
            ("12/25/2026 06:30:00", "2026-12-25T06:30:00.000Z"),
            ("12/25/2026 18:30:00", "2026-12-25T18:30:00.000Z"),
            ("12/25/2026 6:30:00 PM", "2026-12-25T18:30:00.000Z"),
            ("12/25/2026 12:30:00 AM", "2026-12-25T00:30:00.000Z"),
            ("2026-12-25T06:30:00", "2026-12-25T06:30:00.000Z"),
            ("2026-12-25T06:30:00+02:00", "2026-12-25T04:30:00.000Z"),
            // Java's SDK means the afternoon at 14:35, and writes neither AM nor PM.
            ("11/25/2026 02:40:00", "2026-11-25T14:40:00.000Z"),
            ("11/25/2026 02:30:00", "2026-11-25T02:30:00.000Z"),
            ("11/26/2026 02:35:53", "2026-11-26T02:35:53.000Z"),
            ("13/25/2026 06:30:00", nil), ("12/25/2026 24:00:00", nil), ("12/25/2026", nil),
            ("12/25/26 06:30:00", nil), ("12/25/2026 13:00:00 PM", nil), ("tomorrow", nil),
        ]
    )
    func expiries(_ text: String, _ wanted: String?) throws {
        let now = try #require(Instant(iso8601: "2026-11-25T14:35:53Z"))
        #expect(HubTime.instant(text, now: now)?.iso8601 == wanted)
        for name in ["ServiceBusNotification-Apns-Expiry", "ServiceBusNotification-ApnsExpiry"] {
            let headers: HTTPHeaders = ["ServiceBusNotification-Format": "apple", name: text]
            if let wanted {
                let sent = try HubMessage(headers, body: Array("{}".utf8), now: now)
                #expect(sent.expiresAt?.iso8601 == wanted)
            } else {
                #expect(throws: AzureError.self) { try message(headers, "{}") }
            }
        }
    }

    @Test(
        "A send without a format gets its push service from its headers or payload",
        arguments: [
            ("apns-push-type", "alert", #"{"aps":{}}"#, HubMessage.Format.apple),
            ("X-Apns-Priority", "5", #"{"aps":{}}"#, .apple),
            ("ServiceBusNotification-Apns-Expiry", "12/25/2026 06:30:00", "{}", .apple),
            ("X-Unknown", "1", #"{"aps":{"alert":"x"}}"#, .apple),
            ("X-WNS-Type", "wns/toast", "<toast/>", .windows),
            ("X-WindowsPhone-Target", "toast", "<wp:Notification/>", .windowsphone),
            ("X-NotificationClass", "2", "<wp:Notification/>", .windowsphone),
        ]
    )
    func withoutFormat(
        _ name: String,
        _ value: String,
        _ body: String,
        _ format: HubMessage.Format
    ) throws {
        #expect(try message([name: value], body).format == format)
    }

    @Test("A priority in .NET's header is APNs' priority")
    func priority() throws {
        let sent = try message(["X-Apns-Priority": "5"], #"{"aps":{}}"#)
        #expect(
            sent.content
                == .native([
                    "apns": ["headers": ["apns-priority": "5"], "payload": ["aps": [:]]]
                ])
        )
    }

    @Test(
        "A body in ISO-8859-1 becomes UTF-8, with a matching declaration",
        arguments: [
            ("application/xml; charset=ISO-8859-1", "<toast>caf", "<toast>caf"),
            ("application/xml;charset=\"latin1\"", "<toast>caf", "<toast>caf"),
            (
                "application/xml", "<?xml version='1.0' encoding='ISO-8859-1'?><toast>caf",
                "<?xml version='1.0' encoding='utf-8'?><toast>caf"
            ),
            (
                "application/xml; charset=ISO-8859-1",
                "<?xml version=\"1.0\" encoding=\"utf-8\"?><toast>caf",
                "<?xml version=\"1.0\" encoding=\"utf-8\"?><toast>caf"
            ),
        ]
    )
    func latin1(_ contentType: String, _ start: String, _ wanted: String) throws {
        let sent = try HubMessage(
            [
                "ServiceBusNotification-Format": "windows", "X-WNS-Type": "wns/toast",
                "Content-Type": contentType,
            ],
            body: Array(start.utf8) + [0xE9] + Array("</toast>".utf8)
        )
        #expect(
            sent.content
                == .native([
                    "wns": [
                        "type": "wns/toast", "headers": [:], "body": .string(wanted + "é</toast>"),
                    ]
                ])
        )
    }

    @Test("A body that is neither UTF-8 nor in its declared charset is 400, and UTF-8 stays UTF-8")
    func charsets() throws {
        let headers: HTTPHeaders = [
            "ServiceBusNotification-Format": "windows", "X-WNS-Type": "wns/toast",
        ]
        for type in [
            "application/xml", "application/xml; charset=utf-8", "text/xml; charset=koi8-r",
        ] {
            #expect(throws: AzureError.self) {
                try HubMessage(
                    headers,
                    body: Array("<toast>".utf8) + [0xE9] + Array("</toast>".utf8),
                    contentType: type
                )
            }
        }
        #expect(
            HubText.utf8(Array("<t>é</t>".utf8), contentType: "text/xml; charset=ISO-8859-1")
                == Array("<t>é</t>".utf8)
        )
    }

    @Test("A legacy FCM message becomes the v1 message with the same meaning")
    func legacy() throws {
        let sent = try message(
            ["ServiceBusNotification-Format": "gcm"],
            """
            {"collapse_key":"k","priority":"high","time_to_live":60,"data":{"a":1,"b":"c"},
            "notification":{"title":"T","body":"B","icon":"i","click_action":"OPEN"}}
            """
        )
        #expect(
            sent.content
                == .native([
                    "fcm": [
                        "message": [
                            "data": ["a": "1", "b": "c"],
                            "notification": ["title": "T", "body": "B"],
                            "android": [
                                "collapse_key": "k", "priority": "HIGH", "ttl": "60s",
                                "notification": ["icon": "i", "click_action": "OPEN"],
                            ],
                        ]
                    ]
                ])
        )
    }

    @Test(
        "A message that cannot be sent is refused by name",
        arguments: [
            ("", "{}", 400), ("amiga", "{}", 400), ("adm", "{}", 501), ("browser", "{}", 501),
            ("apple", "[]", 400), ("apple", "{", 400), ("gcm", #"{"to":"x"}"#, 400),
            ("gcm", #"{"datas":{}}"#, 400), ("fcmv1", #"{"message":{"token":"t"}}"#, 400),
            ("fcmv1", #"{"data":{}}"#, 400), ("windows", "plain", 400),
            ("template", #"{"a":1}"#, 400), ("template", "x", 400),
        ]
    )
    func refused(_ format: String, _ body: String, _ status: Int) {
        var headers: HTTPHeaders = [:]
        if !format.isEmpty { headers["ServiceBusNotification-Format"] = format }
        let error = #expect(throws: AzureError.self) { try message(headers, body) }
        #expect(error?.status == status)
    }

    @Test("A template send is one push for each template name of the app's devices")
    func templates() throws {
        let sent = try message(["ServiceBusNotification-Format": "template"], #"{"M":"hi"}"#)
        let requests = sent.requests(to: .tags("vip"), at: nil, templates: ["a.b", "c"])
        #expect(
            requests.map(\.source)
                == ["carillon/azure/template/a.b", "carillon/azure/template/c"]
        )
        #expect(
            requests[0].object
                == ["tags": "vip", "template": ["name": "a.b", "properties": ["M": "hi"]]]
        )
        let request = try PushRequest.parse(requests[0].object, now: .now())
        #expect(request.deviceTemplate?.properties == ["m": "hi"])
        #expect(request.templateFields == ["_azure.templates.a$b"])
        let nobody = sent.requests(to: .tags(nil), at: nil, templates: [])
        #expect(nobody.count == 1)
        #expect(nobody.first?.object["installations"] == [])
    }

    // MARK: Batches

    private let jsBody =
        "--nh-boundary-1\r\nContent-type: application/json;charset=utf-8\r\n"
        + "Content-Disposition: inline; name=notification\r\n\r\n{\"aps\":{}}\r\n"
        + "--nh-boundary-1\r\nContent-type: application/json\r\n"
        + "Content-Disposition: inline; name=devices\r\n\r\n[\"aa\",\"bb\"]\r\n--nh-boundary-1--"

    @Test(
        "The boundary is found in every notation",
        arguments: [
            #"multipart/mixed; boundary = "nh-boundary-1""#,
            #"multipart/mixed; boundary="nh-boundary-1""#,
            "multipart/mixed;boundary=nh-boundary-1; charset=utf-8",
            "Multipart/Mixed; Boundary = nh-boundary-1",
            "multipart/form-data; boundary=nh-boundary-1",
            #"multipart/mixed; x="a;b"; boundary="nh-boundary-1""#,
        ]
    )
    func boundaries(_ contentType: String) throws {
        let parts = try MultipartBody.parse(Array(jsBody.utf8), contentType: contentType)
        #expect(parts.map(\.name) == ["notification", "devices"])
        #expect(
            parts.map { String(decoding: $0.body, as: UTF8.self) }
                == ["{\"aps\":{}}", "[\"aa\",\"bb\"]"]
        )
        let bare = Array(
            jsBody.split(separator: "\r\n", omittingEmptySubsequences: false)
                .joined(separator: "\n").utf8
        )
        #expect(try MultipartBody.parse(bare, contentType: contentType).count == 2)
    }

    @Test("A body that is not multipart is refused, whatever it is")
    func malformedBatches() {
        let type = "multipart/mixed; boundary=b"
        for (body, type) in [
            ("", type), ("--b", type), ("--b\r\n--b", type), ("--b\r\nx\r\n--b--", type),
            (jsBody, "multipart/mixed"), ("--b\r\n\r\nx\r\n--b", type),
            (String(repeating: "--b\n\n\n", count: 50) + "--b--", type),
        ] {
            #expect(throws: AzureError.self) {
                try MultipartBody.parse(Array(body.utf8), contentType: type)
            }
        }
    }
}
