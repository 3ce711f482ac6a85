-- oldest usable: 1
--
-- Events for few devices are looked for by their event's id, whole: an index of hashes is a third
-- of one of texts, and cheaper to write.

-- The new one first: events are looked for all the time.
CREATE INDEX event_pushes_event_hash ON event_pushes USING hash (event_id);

DROP INDEX event_pushes_event;

ALTER INDEX event_pushes_event_hash RENAME TO event_pushes_event;
