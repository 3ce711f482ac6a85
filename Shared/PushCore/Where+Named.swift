/// An equality on a field whose values few devices share, such as a `where` for one device or for
/// one user's devices.
package struct NamedDevices: Sendable, Equatable {
    package let field: Field
    /// The values, at least one: strings, or pointers for `owner` and `user`.
    package let values: [WhereValue]

    package enum Field: String, Sendable, CaseIterable {
        case objectID = "objectId"
        case installationID = "installationId"
        case deviceToken
        case owner, user
    }

    /// The names of the devices or users.
    package var names: [String] {
        values.compactMap { value in
            switch value {
            case .string(let name), .pointer(_, let name): name
            default: nil
            }
        }
    }
}

extension Where {
    /// The devices that it names; `nil` for any other condition. It must require that `objectId`,
    /// `installationId`, `deviceToken`, `owner` or `user` equals one value, or one of a list.
    package var namedDevices: NamedDevices? {
        switch self {
        case .all(let parts): return parts.count == 1 ? parts[0].namedDevices : nil
        case .any, .none: return nil
        case .field(let path, let test):
            guard path.segments.count == 1, let field = NamedDevices.Field(rawValue: path.text)
            else { return nil }
            let values: [WhereValue]
            switch test {
            case .equal(let value): values = [value]
            case .among(let list): values = list
            default: return nil
            }
            guard !values.isEmpty, values.allSatisfy(field.takes) else { return nil }
            return NamedDevices(field: field, values: values)
        }
    }
}

extension NamedDevices.Field {
    fileprivate func takes(_ value: WhereValue) -> Bool {
        switch (self, value) {
        case (.objectID, .string), (.installationID, .string), (.deviceToken, .string): true
        case (.owner, .pointer), (.user, .pointer): true
        default: false
        }
    }
}
