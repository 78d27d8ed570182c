-- What one instance's messages.db holds.
--
-- Rule 1: rows are appended; only a prune removes them, and it says so in a row of its own.
-- Rule 2: `position` numbers every row of every table in the order of its commit, without gaps above
--   the latest prune. A missing number is damage.
-- Rule 3: `checksum` is BLAKE2b-8 over the table's name and all other columns, in this order.
-- Rule 4: no secondary index. Each one would cost every commit one more synced page; the engine keeps
--   its own in memory and builds them anew from `load`.
--
-- Source: reference/native.md 176; reference/reliability.md K17; reference/substrate.md 5.

CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A message enters a box: contract.MessageRow.
CREATE TABLE message (
    cursor INTEGER PRIMARY KEY,
    position INTEGER NOT NULL,
    box TEXT NOT NULL,
    message_id TEXT NOT NULL,
    envelope BLOB NOT NULL,
    digest BLOB NOT NULL,
    at_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    deadline_ms INTEGER NOT NULL,
    from_person INTEGER NOT NULL,
    checksum BLOB NOT NULL
) STRICT;

-- One change of one record: contract.MoveRow. The last row of a message is its state.
CREATE TABLE move (
    position INTEGER PRIMARY KEY,
    cursor INTEGER NOT NULL,
    message INTEGER NOT NULL,
    state TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    accepted_ms INTEGER,
    consumed_ms INTEGER,
    replied_ms INTEGER,
    outcome TEXT,
    durability TEXT,
    is_retryable INTEGER NOT NULL,
    note TEXT NOT NULL,
    token TEXT,
    exposure_count INTEGER NOT NULL,
    recipient_cursor INTEGER,
    checksum BLOB NOT NULL
) STRICT;

-- External context was recorded: contract.ContextRow.
CREATE TABLE context (
    position INTEGER PRIMARY KEY,
    cursor INTEGER NOT NULL,
    message INTEGER NOT NULL,
    record TEXT NOT NULL,
    token TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    checksum BLOB NOT NULL
) STRICT;

-- A child execution began or ended: contract.RunRow. The last row of a run holds.
CREATE TABLE run (
    position INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    alias TEXT NOT NULL,
    capabilities TEXT NOT NULL,
    is_live INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    checksum BLOB NOT NULL
) STRICT;

-- A peer was silenced, or no longer is: contract.MuteRow. The last row of a peer holds.
CREATE TABLE mute (
    position INTEGER PRIMARY KEY,
    peer TEXT NOT NULL,
    is_muted INTEGER NOT NULL,
    checksum BLOB NOT NULL
) STRICT;

-- The latest prune: contract.PruneRow without the names of what is gone.
CREATE TABLE prune (
    position INTEGER PRIMARY KEY,
    moves_through INTEGER NOT NULL,
    oldest_cursor INTEGER NOT NULL,
    checksum BLOB NOT NULL
) STRICT;

-- Pages held back on the disk, so that what was accepted can end when the disk is full.
CREATE TABLE headroom (
    number INTEGER PRIMARY KEY,
    filler BLOB NOT NULL
) STRICT;
