import ConfigStorage
import HTTPServer
import JSON
import PushCore
import RemoteConfig

/// The templates and versions of responses, in the format of Firebase's clients.
enum TemplateAnswer {
    /// Returns the ETag of a version of an app's template: `etag-<app>-<version>`, with `server` between the
    /// two for that namespace.
    static func etag(_ app: String, _ namespace: ConfigNamespace, _ version: Int) -> String {
        switch namespace {
        case .firebase: "etag-\(app)-\(version)"
        case .server: "etag-\(app)-\(namespace.rawValue)-\(version)"
        }
    }

    /// Returns the version that an `If-Match` names; `nil` if it is not an ETag of this template,
    /// or if it is the ETag of a validation.
    static func version(
        ofETag text: String,
        _ app: String,
        _ namespace: ConfigNamespace
    ) -> Int? {
        var text = text[...]
        if text.count >= 2, text.first == "\"", text.last == "\"" {
            text = text.dropFirst().dropLast()
        }
        let head = etag(app, namespace, 0).dropLast()
        guard text.utf8.starts(with: head.utf8) else { return nil }
        return text.dropFirst(head.count).wholeNumber
    }

    /// Returns a response with a template and its version.
    static func response(
        _ template: JSONObject,
        version: JSONObject,
        etag: String
    ) -> HTTPServerResponse {
        var object = template
        object["version"] = .object(version)
        return HTTPServerResponse(
            status: 200,
            headers: ["Content-Type": "application/json; charset=UTF-8", "ETag": etag],
            body: object.bytes
        )
    }

    static func response(
        _ stored: StoredConfigVersion,
        _ namespace: ConfigNamespace
    ) -> HTTPServerResponse {
        response(
            stored.template?.object ?? [:],
            version: stored.json,
            etag: etag(stored.app, namespace, stored.version)
        )
    }
}

extension StringProtocol {
    /// The number, if the string is plain decimal. `Int` also accepts a sign and leading zeros.
    var wholeNumber: Int? {
        guard utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }),
            utf8.count == 1 || utf8.first != UInt8(ascii: "0")
        else { return nil }
        return Int(self)
    }
}
