import Storage

/// The APNs topic that an installation names, as its deliveries carry it.
package enum InstallationTopic {
    /// Returns its own `apnsTopic`; else `appIdentifier`, the bundle id that Parse's clients send, by
    /// which Parse Server chooses the credential. If null, its deliveries are sent under the push's
    /// topic, else under the app's default.
    ///
    /// - Parameter row: The installation's name in the statement.
    /// - Returns: An expression, of type `text`.
    package static func sql(of row: String) -> String {
        """
        coalesce(nullif(\(row).apns_topic, ''), CASE WHEN \(row).provider = 'apns'
            THEN nullif(left(\(row).fields->>'appIdentifier', 256), '') END)
        """
    }
}
