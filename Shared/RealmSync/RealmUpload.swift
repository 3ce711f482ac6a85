internal import Compression

/// The transactions of one message, not decompressed yet: that takes longer than a loop should wait.
package struct RealmUpload: Sendable {
    /// Names an upload of one connection; valid for this connection only.
    package struct Ticket: Equatable, Sendable {
        let session: Int64
        let number: UInt64
    }

    package let ticket: Ticket
    private let message: [UInt8]
    private let body: ClientMessage.UploadBody
    private let maximumChangesets: Int

    init(
        _ ticket: Ticket,
        _ message: [UInt8],
        _ body: ClientMessage.UploadBody,
        _ limits: RealmLimits
    ) {
        self.ticket = ticket
        self.message = message
        self.body = body
        maximumChangesets = limits.changesets
    }

    /// The bytes that it has, and those of its decompressed form.
    package var byteCount: Int { message.count + (body.isCompressed ? body.plainSize : 0) }

    /// Decompresses the body and splits it.
    ///
    /// - Returns: The transactions in the order of their versions. It may be empty.
    /// - Throws: `RealmFault`, with which the connection must end: `RealmConnection.failed`.
    package func changesets() throws(RealmFault) -> [RealmChangeset] {
        var (bytes, start) = (message, body.start)
        if body.isCompressed {
            do throws(CompressionError) {
                bytes = try inflatedZlib(message, from: body.start, maximumBytes: body.plainSize)
            } catch {
                throw .compression
            }
            guard bytes.count == body.plainSize else { throw .compression }
            start = 0
        }
        return try split(bytes, from: start)
    }

    /// Each transaction is `C S time originFile size `, and its bytes.
    private func split(
        _ bytes: [UInt8],
        from start: Int
    ) throws(RealmFault) -> [RealmChangeset] {
        let fault = RealmFault.malformed("upload")
        var changesets: [RealmChangeset] = []
        var cursor = TextCursor(bytes, at: start)
        var previous: Int64 = 0
        let space = UInt8(ascii: " ")
        while cursor.remaining > 0 {
            guard let version = cursor.number(endingWith: space),
                let serverVersion = cursor.number(endingWith: space),
                // The time is that of the device, which may be any.
                cursor.number(endingWith: space) != nil,
                cursor.number(endingWith: space) != nil,
                let size = cursor.number(endingWith: space),
                size <= Int64(cursor.remaining), version > previous
            else { throw fault }
            guard changesets.count < maximumChangesets else { throw .tooLarge }
            previous = version
            let end = cursor.position + Int(size)
            changesets.append(
                RealmChangeset(
                    version: version,
                    serverVersion: serverVersion,
                    bytes: bytes[cursor.position..<end]
                )
            )
            cursor.skip(Int(size))
        }
        return changesets
    }
}

/// The outcome of one transaction, once it is durable: in Kafka, or as a dead letter.
package struct RealmStored: Sendable {
    let version: Int64
    let serverVersion: Int64
    let refused: [RealmRefusal]
    let isUnreadable: Bool

    /// - Parameters:
    ///   - changeset: The transaction.
    ///   - refused: The objects that are not stored.
    ///   - isUnreadable: Whether the transaction as a whole could not be decoded.
    package init(_ changeset: RealmChangeset, refused: [RealmRefusal], isUnreadable: Bool = false) {
        version = changeset.version
        serverVersion = changeset.serverVersion
        self.refused = refused
        self.isUnreadable = isUnreadable
    }
}
