-- oldest usable: 1
--
-- Pushes that a person is writing in the console. Nothing is sent from a draft: sending makes a push
-- whose event is the draft, so that a draft is sent once.

CREATE TABLE push_drafts (
    id uuid PRIMARY KEY,
    app text COLLATE "C" NOT NULL REFERENCES apps ON DELETE CASCADE,
    author text NOT NULL,
    -- The fields of the form, as they were typed: an object of strings.
    form jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now());

CREATE INDEX push_drafts_app ON push_drafts (app, updated_at);

CREATE INDEX push_drafts_updated_at ON push_drafts (updated_at);
