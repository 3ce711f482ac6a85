-- oldest usable: 1
--
-- Push records as clients ask for them: by the label that several may share, and without those that
-- a client has hidden. An older service shows the hidden ones.

ALTER TABLE pushes ADD COLUMN hidden_at timestamptz;

CREATE INDEX pushes_label ON pushes (app, (notes->>'notificationId'))
    WHERE notes->>'notificationId' IS NOT NULL;
