//! The layout of the database, and the steps that lead to it from each earlier one.

/// `HcSe`: marks the file as ours (SQLite file format, section 1.3.9).
pub(super) const APPLICATION_ID: i64 = 0x4863_5365;

/// What leads from version 0, an empty file, to the present one: entry `n` makes version `n + 1` of version `n`. Entries are only added;
/// one that was published never changes.
pub(super) const MIGRATIONS: &[&str] = &[V1];

/// - `message`, `kept_result` and `stub` only grow with a conversation; what changes with each step is the one `checkpoint` of its run.
/// - `session.parent` is set for workers' sessions; they go with their parent.
/// - `run.first_seq`: the run's conversation is the session's messages from there on, as many as its checkpoint says.
/// - `status`: `open` until the run is over, then its stop reason.
const V1: &str = "
    CREATE TABLE session (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        parent INTEGER REFERENCES session ON DELETE CASCADE,
        title TEXT NOT NULL,
        status TEXT NOT NULL,
        model TEXT,
        runs INTEGER NOT NULL DEFAULT 0,
        messages INTEGER NOT NULL DEFAULT 0,
        tool_calls INTEGER NOT NULL DEFAULT 0,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX session_by_age ON session (parent, updated_at);
    CREATE TABLE run (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
        parent_run_id TEXT,
        number INTEGER NOT NULL,
        task TEXT NOT NULL,
        model TEXT,
        settings TEXT NOT NULL,
        first_seq INTEGER NOT NULL,
        status TEXT NOT NULL,
        usage TEXT NOT NULL,
        started_at INTEGER NOT NULL,
        ended_at INTEGER,
        UNIQUE (session, number)
    ) STRICT;
    CREATE TABLE checkpoint (
        run INTEGER PRIMARY KEY REFERENCES run ON DELETE CASCADE,
        state TEXT NOT NULL,
        messages INTEGER NOT NULL,
        created_at INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE message (
        session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        run INTEGER NOT NULL,
        body TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        UNIQUE (session, seq)
    ) STRICT;
    CREATE TABLE kept_result (
        number INTEGER PRIMARY KEY,
        session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
        call_id TEXT NOT NULL,
        text TEXT NOT NULL,
        UNIQUE (session, call_id)
    ) STRICT;
    CREATE TABLE stub (
        session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
        call_id TEXT NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (session, call_id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE tool_call (
        run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
        call_id TEXT NOT NULL,
        tool TEXT NOT NULL,
        arguments TEXT NOT NULL,
        decision TEXT,
        status TEXT NOT NULL,
        code TEXT,
        attempts INTEGER NOT NULL DEFAULT 0,
        fuel INTEGER,
        memory_bytes INTEGER,
        wall_us INTEGER,
        started_at INTEGER,
        ended_at INTEGER,
        UNIQUE (run, call_id)
    ) STRICT;
    CREATE TABLE approval (
        run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
        call_id TEXT NOT NULL,
        rule TEXT NOT NULL,
        asked_at INTEGER NOT NULL,
        answer TEXT,
        remembered INTEGER,
        answered_at INTEGER
    ) STRICT;
    CREATE INDEX approval_by_call ON approval (run, call_id);
    CREATE TABLE event (
        run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        ts INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (run, seq)
    ) STRICT;
";
