-- oldest usable: 1
--
-- The connections of a dispatcher: they are ended with its session.

ALTER TABLE dispatchers ADD COLUMN connections text;
