-- oldest usable: 1
--
-- Queues of the outbox take turns, so that no app's records delay another's. A writer of the version
-- before does not know them: its records are in the queue without a name. Its relay claims all records
-- in one order.

ALTER TABLE outbox ADD COLUMN queue text COLLATE "C" NOT NULL DEFAULT '';

-- The version before claims by `outbox_due`; this one does not use it.
CREATE INDEX outbox_queues ON outbox (queue, due_at, id);
