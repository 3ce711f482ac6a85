-- oldest usable: 1
--
-- An index of waiting deliveries by app and provider, so that each gets its share of a claim. Only
-- rows that nobody owns are in it, retries above all: what is sent at the first try never is.

CREATE INDEX deliveries_due_of ON deliveries (lane, app, provider, due_at)
    WHERE state = 0 AND owner IS NULL;
