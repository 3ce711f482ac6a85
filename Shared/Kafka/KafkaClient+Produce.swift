internal import CRDKafka

extension KafkaClient {
    /// Produces one record; librdkafka copies it, and does not block. `number` is above 0, and
    /// comes back with the delivery report if the code is success.
    func produce(_ record: KafkaOutgoing, number: Int) -> rd_kafka_resp_err_t {
        let headers = unsafe makeHeaders(record.headers)
        let code = unsafe withBytes(record.key) { key, keySize in
            unsafe withBytes(record.value) { value, valueSize in
                unsafe withHandle { handle in
                    unsafe carillon_kafka_produce(
                        handle,
                        record.topic,
                        record.partition ?? RD_KAFKA_PARTITION_UA,
                        key,
                        keySize,
                        value,
                        valueSize,
                        headers,
                        UnsafeMutableRawPointer(bitPattern: number)
                    )
                }
            }
        }
        if code != RD_KAFKA_RESP_ERR_NO_ERROR, let headers = unsafe headers {
            unsafe rd_kafka_headers_destroy(headers)
        }
        return code
    }

    /// Produces a range of records of a block, up to the first that is refused. librdkafka copies
    /// the records, and does not block. `number` is the number of the first record.
    ///
    /// - Returns: How many were accepted, and the refusal of the next.
    func produce(
        _ block: KafkaRecordBlock,
        _ range: Range<Int>,
        number: Int
    ) -> (taken: Int, refusal: rd_kafka_resp_err_t) {
        // One look-up for all records. The client also references the topic, so this is not the
        // last reference to it.
        guard
            let topic = unsafe withHandle({ unsafe rd_kafka_topic_new($0, block.topic, nil) })
        else { return (0, rd_kafka_last_error()) }
        defer { unsafe rd_kafka_topic_destroy(topic) }
        if !block.headers.isEmpty { return unsafe produce(block, range, to: topic, number) }
        for index in range {
            let status = unsafe block.withRecord(index) { key, value in
                unsafe rd_kafka_produce(
                    topic,
                    RD_KAFKA_PARTITION_UA,
                    RD_KAFKA_MSG_F_COPY,
                    UnsafeMutableRawPointer(mutating: value.baseAddress),
                    value.count,
                    key.baseAddress,
                    key.count,
                    UnsafeMutableRawPointer(bitPattern: number + index - range.lowerBound)
                )
            }
            guard status == 0 else { return (index - range.lowerBound, rd_kafka_last_error()) }
        }
        return (range.count, RD_KAFKA_RESP_ERR_NO_ERROR)
    }
}

extension KafkaClient {
    /// Produces records with headers; each record gets its own copy of the list.
    private func produce(
        _ block: KafkaRecordBlock,
        _ range: Range<Int>,
        to topic: OpaquePointer,
        _ number: Int
    ) -> (taken: Int, refusal: rd_kafka_resp_err_t) {
        guard let headers = unsafe makeHeaders(block.headers) else {
            return (0, RD_KAFKA_RESP_ERR__FAIL)
        }
        defer { unsafe rd_kafka_headers_destroy(headers) }
        for index in range {
            let own = unsafe rd_kafka_headers_copy(headers)
            let code = unsafe block.withRecord(index) { key, value in
                unsafe withHandle { handle in
                    unsafe carillon_kafka_produce_to(
                        handle,
                        topic,
                        key.baseAddress,
                        key.count,
                        value.baseAddress,
                        value.count,
                        own,
                        UnsafeMutableRawPointer(bitPattern: number + index - range.lowerBound)
                    )
                }
            }
            guard code == RD_KAFKA_RESP_ERR_NO_ERROR else {
                unsafe rd_kafka_headers_destroy(own)
                return (index - range.lowerBound, code)
            }
        }
        return (range.count, RD_KAFKA_RESP_ERR_NO_ERROR)
    }
}

/// Passes the bytes to `body`; an empty key has an address, which distinguishes it from no key.
private func withBytes<Result>(
    _ bytes: [UInt8]?,
    _ body: (UnsafeRawPointer?, Int) -> Result
) -> Result {
    guard let bytes else { return body(nil, 0) }
    if bytes.isEmpty {
        return unsafe withUnsafeBytes(of: UInt8(0)) { unsafe body($0.baseAddress, 0) }
    }
    return unsafe bytes.withUnsafeBytes { unsafe body($0.baseAddress, $0.count) }
}

private func makeHeaders(_ headers: [KafkaHeader]) -> OpaquePointer? {
    if headers.isEmpty { return nil }
    guard let list = unsafe rd_kafka_headers_new(headers.count) else { return nil }
    for header in headers {
        unsafe withBytes(header.value) { value, size in
            _ = unsafe rd_kafka_header_add(list, header.name, -1, value, size)
        }
    }
    return unsafe list
}
