/* librdkafka's own producer, for deploy/bench ingest: its rate with the records that ingest writes.
 *
 * usage: kafka_producer TOPIC COUNT FILE APP
 *
 * FILE has objects, one a line, each with its `_id` first. COUNT records of them go to TOPIC, repeated
 * from the top: the `_id` as key, the line as value, and the headers of ingest. Idempotent, acks=all,
 * with the settings of Carillon's producer. It polls like librdkafka's own benchmark, at intervals and
 * when its queue is full. Prints records a second, from the first call to the last acknowledgement, as
 * one JSON object. */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long failed, done;

static void delivered(rd_kafka_t *kafka, const rd_kafka_message_t *message, void *opaque) {
    (void)kafka;
    (void)opaque;
    if (message->err)
        failed++;
    else
        done++;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK) {
        fprintf(stderr, "kafka_producer: %s\n", error);
        exit(64);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    const char *servers = getenv("KAFKA_BOOTSTRAP_SERVERS");
    if (argc != 5 || !servers) {
        fprintf(stderr, "usage: kafka_producer TOPIC COUNT FILE APP\n");
        return 64;
    }
    long count = atol(argv[2]), lines = 0, room = 0;
    char **values = NULL, *line = NULL;
    size_t *lengths = NULL, size = 0;
    FILE *file = fopen(argv[3], "r");
    if (!file) return 66;
    for (ssize_t length; (length = getline(&line, &size, file)) > 0; lines++) {
        if (lines == room) {
            room = room ? room * 2 : 1024;
            values = realloc(values, room * sizeof *values);
            lengths = realloc(lengths, room * sizeof *lengths);
        }
        lengths[lines] = length - 1;
        values[lines] = memcpy(malloc(length), line, length);
    }
    if (!lines) return 66;

    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", servers);
    set(conf, "enable.idempotence", "true");
    set(conf, "acks", "all");
    set(conf, "linger.ms", "5");
    set(conf, "message.max.bytes", "4194304");
    set(conf, "queue.buffering.max.messages", "100000");
    set(conf, "queue.buffering.max.kbytes", "65536");
    set(conf, "partitioner", "murmur2_random");
    rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    char error[512];
    rd_kafka_t *kafka = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof error);
    if (!kafka) return 70;

    double start = now();
    for (long number = 0; number < count; number++) {
        const char *value = values[number % lines];
        size_t length = lengths[number % lines];
        /* {"_id":"<24 digits>",… */
        const char *key = value + 8;
        for (;;) {
            rd_kafka_headers_t *headers = rd_kafka_headers_new(3);
            rd_kafka_header_add(headers, "app", 3, argv[4], -1);
            rd_kafka_header_add(headers, "schema.version", 14, "1", -1);
            rd_kafka_header_add(headers, "received.at", 11, "2026-11-25T08:00:00.000Z", -1);
            rd_kafka_resp_err_t code = rd_kafka_producev(
                kafka, RD_KAFKA_V_TOPIC(argv[1]), RD_KAFKA_V_KEY(key, 24), RD_KAFKA_V_HEADERS(headers),
                RD_KAFKA_V_VALUE((void *)value, length), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                RD_KAFKA_V_END);
            if (!code) break;
            rd_kafka_headers_destroy(headers);
            if (code != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
                fprintf(stderr, "kafka_producer: %s\n", rd_kafka_err2str(code));
                return 70;
            }
            rd_kafka_poll(kafka, 5);
        }
        if (number % 100 == 0) rd_kafka_poll(kafka, 0);
    }
    rd_kafka_flush(kafka, 60000);
    double seconds = now() - start;
    if (failed || done != count) {
        fprintf(stderr, "kafka_producer: %ld of %ld were acknowledged\n", done, count);
        return 70;
    }
    printf("{\"per_second\": %.1f}\n", count / seconds);
    return 0;
}
