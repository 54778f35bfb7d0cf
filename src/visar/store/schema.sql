-- The tables of an index. docs/index-format.md explains them.
CREATE TABLE documents (
    id TEXT PRIMARY KEY,            -- SHA-256 of the content
    name TEXT NOT NULL,
    source TEXT NOT NULL,           -- path or URL that the document was added from, or ''
    pages INTEGER NOT NULL,
    size INTEGER NOT NULL,
    added REAL NOT NULL,            -- seconds since 1970, UTC
    revision TEXT NOT NULL,         -- of the pages: changes when they are read again
    checksum INTEGER NOT NULL,      -- of all pages
    metadata TEXT NOT NULL DEFAULT '{}'
) STRICT;
CREATE INDEX documents_by_source ON documents (source) WHERE source <> '';

CREATE TABLE pages (
    id INTEGER PRIMARY KEY,
    document TEXT NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,        -- from 1
    width REAL NOT NULL,
    height REAL NOT NULL,
    rotation INTEGER NOT NULL,
    text_source TEXT NOT NULL,
    label TEXT NOT NULL,            -- printed page number; '' if unknown or the same as number
    words TEXT NOT NULL,            -- separated by U+001F
    boxes BLOB NOT NULL,            -- float32 (n, 4)
    lines BLOB NOT NULL,            -- int32 (n,)
    checksum INTEGER NOT NULL,      -- of the columns above
    blocks TEXT,                    -- JSON: checksum and layout; NULL if there is no layout yet
    UNIQUE (document, number)
) STRICT;
CREATE VIRTUAL TABLE page_text USING fts5 (words, content = 'pages', content_rowid = 'id');
CREATE TRIGGER page_added AFTER INSERT ON pages BEGIN
    INSERT INTO page_text (rowid, words) VALUES (new.id, new.words);
END;
CREATE TRIGGER page_removed AFTER DELETE ON pages BEGIN
    INSERT INTO page_text (page_text, rowid, words) VALUES ('delete', old.id, old.words);
END;

CREATE TABLE vectors (
    document TEXT NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    encoder TEXT NOT NULL,
    version TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    array TEXT NOT NULL,            -- vectors/ARRAY.vectors.npy and .patches.npy
    invalid TEXT NOT NULL,          -- JSON: [number, reason] of pages without vectors
    lengths BLOB NOT NULL,          -- int32: vectors of each page
    checksums BLOB NOT NULL,        -- uint32: CRC-32 of each page in both files
    PRIMARY KEY (document, encoder)
) STRICT;

CREATE TABLE collections (
    name TEXT NOT NULL,
    document TEXT NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    PRIMARY KEY (name, document)
) STRICT, WITHOUT ROWID;

-- Unfinished additions.
CREATE TABLE drafts (
    array TEXT PRIMARY KEY,
    document TEXT NOT NULL,
    encoder TEXT NOT NULL,
    version TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    revision TEXT                   -- of the pages in the index; NULL if the draft has pages
) STRICT;
CREATE INDEX drafts_by_document ON drafts (document);
CREATE TABLE draft_pages (
    array TEXT NOT NULL REFERENCES drafts (array) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    first INTEGER NOT NULL,         -- row of its first vector
    rows INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    invalid TEXT,
    width REAL, height REAL, rotation INTEGER, text_source TEXT, label TEXT,
    words TEXT, boxes BLOB, lines BLOB,
    page_checksum INTEGER,          -- NULL, like the columns above, if the pages are in the index
    blocks TEXT,
    PRIMARY KEY (array, number)
) STRICT, WITHOUT ROWID;
