-- oldest usable: 1
--
-- A record of the outbox is claimed for a time instead of locked while Kafka is asked, and one that
-- the broker does not take waits its turn behind the others.

ALTER TABLE outbox ADD COLUMN due_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN refusals integer NOT NULL DEFAULT 0;

CREATE INDEX outbox_due ON outbox (due_at, id);
