-- oldest usable: 1
--
-- The values of a delivery's placeholders, stored with the row for the time that it waits.

ALTER TABLE deliveries ADD COLUMN template_values json;
