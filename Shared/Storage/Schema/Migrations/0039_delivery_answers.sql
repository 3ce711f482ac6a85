-- oldest usable: 1
--
-- The provider's answers to the attempts of a delivery before its last one, for explanations. The
-- version before does not write them, and its deliveries show the last answer only.

-- A list of objects: "n" the number of the attempt, "t" its time in milliseconds since 1970, "c" the
-- status and "r" the reason, if the provider gave them.
ALTER TABLE deliveries ADD COLUMN answers json;
