#pragma once

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

/* Swift cannot call `rd_kafka_producev`, which is variadic. Librdkafka copies key and value, and
 * owns the headers only where this succeeds. `partition` is RD_KAFKA_PARTITION_UA for the
 * partitioner's choice. */
static inline rd_kafka_resp_err_t
carillon_kafka_produce(rd_kafka_t *client, const char *topic, int32_t partition, const void *key,
                       size_t key_size, const void *value, size_t value_size,
                       rd_kafka_headers_t *headers, void *opaque) {
    if (headers)
        return rd_kafka_producev(client, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
                                 RD_KAFKA_V_KEY(key, key_size),
                                 RD_KAFKA_V_VALUE((void *)value, value_size),
                                 RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(opaque),
                                 RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
    return rd_kafka_producev(client, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
                             RD_KAFKA_V_KEY(key, key_size),
                             RD_KAFKA_V_VALUE((void *)value, value_size),
                             RD_KAFKA_V_OPAQUE(opaque), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                             RD_KAFKA_V_END);
}

/* The same with a topic that was looked up, the partitioner's choice of partition, and headers. */
static inline rd_kafka_resp_err_t
carillon_kafka_produce_to(rd_kafka_t *client, rd_kafka_topic_t *topic, const void *key,
                          size_t key_size, const void *value, size_t value_size,
                          rd_kafka_headers_t *headers, void *opaque) {
    return rd_kafka_producev(client, RD_KAFKA_V_RKT(topic),
                             RD_KAFKA_V_PARTITION(RD_KAFKA_PARTITION_UA),
                             RD_KAFKA_V_KEY(key, key_size),
                             RD_KAFKA_V_VALUE((void *)value, value_size),
                             RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(opaque),
                             RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
}
