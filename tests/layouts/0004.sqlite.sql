BEGIN TRANSACTION;
CREATE TABLE counters (
    collection TEXT NOT NULL,
    shard      INTEGER NOT NULL DEFAULT 0,
    items      INTEGER NOT NULL DEFAULT 0,
    changes    INTEGER NOT NULL DEFAULT 0, revision INTEGER NOT NULL DEFAULT 1, converted_at TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (collection, shard)
) STRICT, WITHOUT ROWID;
INSERT INTO "counters" VALUES('_credentials',0,1,2,1,'');
INSERT INTO "counters" VALUES('_ids',0,1,6,1,'');
INSERT INTO "counters" VALUES('authors',0,2,4,1,'');
INSERT INTO "counters" VALUES('books',0,5,8,1,'');
INSERT INTO "counters" VALUES('keys',0,1,2,2,'');
INSERT INTO "counters" VALUES('notes',0,1,1,1,'');
INSERT INTO "counters" VALUES('settings',0,1,1,1,'');
INSERT INTO "counters" VALUES('webhooks',0,1,1,1,'');
CREATE TABLE deliveries (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook   TEXT NOT NULL,
    event     INTEGER NOT NULL REFERENCES events (position) ON DELETE CASCADE,
    item      TEXT,
    state     TEXT NOT NULL DEFAULT 'pending',
    due       REAL,
    lease     INTEGER NOT NULL DEFAULT 0,
    leased    INTEGER NOT NULL DEFAULT false,
    attempts  INTEGER NOT NULL DEFAULT 0,
    attempted REAL,
    status    INTEGER,
    seconds   REAL,
    excerpt   TEXT
) STRICT;
INSERT INTO "deliveries" VALUES(1,'01a21a38-b193-7ae2-b2d8-39b92dc9ccb3',4,'books/0000000000000001','pending',1800000019.0,1,0,1,1800000014.0,500,0.0,'');
INSERT INTO "deliveries" VALUES(2,'01a21a38-b193-7ae2-b2d8-39b92dc9ccb3',5,'books/0000000000000002','delivered',NULL,1,0,1,1800000014.0,200,0.0,'');
INSERT INTO "deliveries" VALUES(3,'01a21a38-b193-7ae2-b2d8-39b92dc9ccb3',6,'books/0000000000000003','delivered',NULL,1,0,1,1800000014.0,200,0.0,'');
INSERT INTO "deliveries" VALUES(4,'01a21a38-b193-7ae2-b2d8-39b92dc9ccb3',7,'books/0000000000000004','delivered',NULL,1,0,1,1800000014.0,200,0.0,'');
INSERT INTO "deliveries" VALUES(5,'01a21a38-b193-7ae2-b2d8-39b92dc9ccb3',8,'books/0000000000000002','delivered',NULL,1,0,1,1800000014.0,200,0.0,'');
INSERT INTO "deliveries" VALUES(6,'01a21a38-b193-7ae2-b2d8-39b92dc9ccb3',10,'books/0000000000000004','delivered',NULL,1,0,1,1800000014.0,200,0.0,'');
INSERT INTO "deliveries" VALUES(7,'01a21a38-b193-7ae2-b2d8-39b92dc9ccb3',11,'books/0000000000000005','delivered',NULL,1,0,1,1800000014.0,200,0.0,'');
CREATE TABLE events (
    position    INTEGER PRIMARY KEY,  -- SQLite only
    origin      TEXT NOT NULL DEFAULT '',
    type        TEXT NOT NULL,
    collection  TEXT NOT NULL,
    item        TEXT NOT NULL,
    owner       TEXT,
    at          TEXT NOT NULL,
    data        TEXT NOT NULL,
    fingerprint TEXT NOT NULL DEFAULT '',
    removed     TEXT
) STRICT;
INSERT INTO "events" VALUES(1,'4aae7e9f','author.created','authors','ada',NULL,'2027-01-15T08:00:03.000000Z','{"id":"ada","name":"Ada","mail":"Ada@example.org","created_at":"2027-01-15T08:00:03.000000Z","updated_at":"2027-01-15T08:00:03.000000Z","version":1}','e536fc1d',NULL);
INSERT INTO "events" VALUES(2,'4aae7e9f','author.created','authors','bob',NULL,'2027-01-15T08:00:04.000000Z','{"id":"bob","name":"Bob","mail":null,"created_at":"2027-01-15T08:00:04.000000Z","updated_at":"2027-01-15T08:00:04.000000Z","version":1}','e536fc1d',NULL);
INSERT INTO "events" VALUES(3,'4aae7e9f','author.created','authors','gone',NULL,'2027-01-15T08:00:05.000000Z','{"id":"gone","name":"Gone","mail":"gone@example.org","created_at":"2027-01-15T08:00:05.000000Z","updated_at":"2027-01-15T08:00:05.000000Z","version":1}','e536fc1d',NULL);
INSERT INTO "events" VALUES(4,'4aae7e9f','book.created','books','0000000000000001',NULL,'2027-01-15T08:00:06.000000Z','{"id":1,"title":"1st","author":"ada","price":1.5,"tags":["new","t1"],"created_at":"2027-01-15T08:00:06.000000Z","updated_at":"2027-01-15T08:00:06.000000Z","version":1}','57391df6',NULL);
INSERT INTO "events" VALUES(5,'4aae7e9f','book.created','books','0000000000000002',NULL,'2027-01-15T08:00:07.000000Z','{"id":2,"title":"2nd","author":"bob","price":2.5,"tags":["new","t2"],"created_at":"2027-01-15T08:00:07.000000Z","updated_at":"2027-01-15T08:00:07.000000Z","version":1}','57391df6',NULL);
INSERT INTO "events" VALUES(6,'4aae7e9f','book.created','books','0000000000000003',NULL,'2027-01-15T08:00:08.000000Z','{"id":3,"title":"3rd","author":"ada","price":3.5,"tags":["new","t3"],"created_at":"2027-01-15T08:00:08.000000Z","updated_at":"2027-01-15T08:00:08.000000Z","version":1}','57391df6',NULL);
INSERT INTO "events" VALUES(7,'4aae7e9f','book.created','books','0000000000000004',NULL,'2027-01-15T08:00:09.000000Z','{"id":4,"title":"4th","author":"gone","price":4.5,"tags":["new","t4"],"created_at":"2027-01-15T08:00:09.000000Z","updated_at":"2027-01-15T08:00:09.000000Z","version":1}','57391df6',NULL);
INSERT INTO "events" VALUES(8,'4aae7e9f','book.updated','books','0000000000000002',NULL,'2027-01-15T08:00:10.000000Z','{"id":2,"title":"2nd, changed","author":"bob","price":2.5,"tags":["new","t2"],"created_at":"2027-01-15T08:00:07.000000Z","updated_at":"2027-01-15T08:00:10.000000Z","version":2}','57391df6',NULL);
INSERT INTO "events" VALUES(9,'4aae7e9f','author.deleted','authors','gone',NULL,'2027-01-15T08:00:11.000000Z','{"id":"gone","name":"Gone","mail":"gone@example.org","created_at":"2027-01-15T08:00:05.000000Z","updated_at":"2027-01-15T08:00:05.000000Z","version":1}','e536fc1d',NULL);
INSERT INTO "events" VALUES(10,'4aae7e9f','book.deleted','books','0000000000000004',NULL,'2027-01-15T08:00:11.000000Z','{"id":4,"title":"4th","author":"gone","price":4.5,"tags":["new","t4"],"created_at":"2027-01-15T08:00:09.000000Z","updated_at":"2027-01-15T08:00:09.000000Z","version":1}','57391df6',NULL);
INSERT INTO "events" VALUES(11,'4aae7e9f','book.created','books','0000000000000005',NULL,'2027-01-15T08:00:12.000000Z','{"id":5,"title":"Repeated","author":"ada","price":0,"tags":[],"created_at":"2027-01-15T08:00:12.000000Z","updated_at":"2027-01-15T08:00:12.000000Z","version":1}','57391df6',NULL);
INSERT INTO "events" VALUES(12,'4aae7e9f','note.created','notes','01a21a38-b1c4-767d-aa1d-d94257eb7c61','key:b6b1f397f2d1761a','2027-01-15T08:00:13.000000Z','{"id":"01a21a38-b1c4-767d-aa1d-d94257eb7c61","text":"of this key","created_at":"2027-01-15T08:00:13.000000Z","updated_at":"2027-01-15T08:00:13.000000Z","version":1}','5084e0b9',NULL);
INSERT INTO "events" VALUES(13,'4aae7e9f','settings.updated','settings','settings',NULL,'2027-01-15T08:00:14.000000Z','{"id":"settings","theme":"dark","created_at":"1970-01-01T00:00:00.000000Z","updated_at":"2027-01-15T08:00:14.000000Z","version":1}','76e50531',NULL);
INSERT INTO "events" VALUES(14,'4aae7e9f','book.created','books','0000000000000006',NULL,'2027-01-15T08:00:15.000000Z','{"id":6,"title":"Last","author":"bob","price":0,"tags":[],"created_at":"2027-01-15T08:00:15.000000Z","updated_at":"2027-01-15T08:00:15.000000Z","version":1}','57391df6',NULL);
CREATE TABLE items (
    _position   INTEGER PRIMARY KEY,  -- SQLite only
    collection  TEXT NOT NULL,
    id          TEXT NOT NULL,
    owner       TEXT,
    version     INTEGER NOT NULL,
    updated_at  TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    body        TEXT NOT NULL,
    removed     TEXT,
    UNIQUE (collection, id)  -- SQLite only
) STRICT;
INSERT INTO "items" VALUES(1,'keys','b6b1f397f2d1761a',NULL,1,'2027-01-15T08:00:01.000000Z','2-a276d761','{"id":"b6b1f397f2d1761a","name":"kept","scopes":["admin"],"owners":[],"expires_at":null,"last_used_at":"2027-01-15T08:00:02.000000Z","created_at":"2027-01-15T08:00:01.000000Z","updated_at":"2027-01-15T08:00:01.000000Z","version":1}',NULL);
INSERT INTO "items" VALUES(2,'_credentials','b6b1f397f2d1761a',NULL,1,'2027-01-15T08:00:02.000000Z','','["5fe1c47e0519fa7aba8dcdcaac8e5ad8072ed728a6f828db03b0cc4949559f59",["admin"],null,[]]',NULL);
INSERT INTO "items" VALUES(3,'webhooks','01a21a38-b193-7ae2-b2d8-39b92dc9ccb3',NULL,1,'2027-01-15T08:00:02.000000Z','5fca4ad8','{"id":"01a21a38-b193-7ae2-b2d8-39b92dc9ccb3","url":"https://example.org/hook","types":["book.*"],"api_version":"v1","scopes":[],"description":"","status":"active","created_at":"2027-01-15T08:00:02.000000Z","updated_at":"2027-01-15T08:00:02.000000Z","version":1}',NULL);
INSERT INTO "items" VALUES(4,'authors','ada',NULL,1,'2027-01-15T08:00:03.000000Z','e536fc1d','{"id":"ada","name":"Ada","mail":"Ada@example.org","created_at":"2027-01-15T08:00:03.000000Z","updated_at":"2027-01-15T08:00:03.000000Z","version":1}',NULL);
INSERT INTO "items" VALUES(5,'authors','bob',NULL,1,'2027-01-15T08:00:04.000000Z','e536fc1d','{"id":"bob","name":"Bob","mail":null,"created_at":"2027-01-15T08:00:04.000000Z","updated_at":"2027-01-15T08:00:04.000000Z","version":1}',NULL);
INSERT INTO "items" VALUES(7,'_ids','books',NULL,6,'','','{}',NULL);
INSERT INTO "items" VALUES(8,'books','0000000000000001',NULL,1,'2027-01-15T08:00:06.000000Z','57391df6','{"id":1,"title":"1st","author":"ada","price":1.5,"tags":["new","t1"],"created_at":"2027-01-15T08:00:06.000000Z","updated_at":"2027-01-15T08:00:06.000000Z","version":1}',NULL);
INSERT INTO "items" VALUES(9,'books','0000000000000002',NULL,2,'2027-01-15T08:00:10.000000Z','57391df6','{"id":2,"title":"2nd, changed","author":"bob","price":2.5,"tags":["new","t2"],"created_at":"2027-01-15T08:00:07.000000Z","updated_at":"2027-01-15T08:00:10.000000Z","version":2}',NULL);
INSERT INTO "items" VALUES(10,'books','0000000000000003',NULL,1,'2027-01-15T08:00:08.000000Z','57391df6','{"id":3,"title":"3rd","author":"ada","price":3.5,"tags":["new","t3"],"created_at":"2027-01-15T08:00:08.000000Z","updated_at":"2027-01-15T08:00:08.000000Z","version":1}',NULL);
INSERT INTO "items" VALUES(11,'books','0000000000000005',NULL,1,'2027-01-15T08:00:12.000000Z','57391df6','{"id":5,"title":"Repeated","author":"ada","price":0,"tags":[],"created_at":"2027-01-15T08:00:12.000000Z","updated_at":"2027-01-15T08:00:12.000000Z","version":1}',NULL);
INSERT INTO "items" VALUES(12,'notes','01a21a38-b1c4-767d-aa1d-d94257eb7c61','key:b6b1f397f2d1761a',1,'2027-01-15T08:00:13.000000Z','5084e0b9','{"id":"01a21a38-b1c4-767d-aa1d-d94257eb7c61","text":"of this key","created_at":"2027-01-15T08:00:13.000000Z","updated_at":"2027-01-15T08:00:13.000000Z","version":1}',NULL);
INSERT INTO "items" VALUES(13,'settings','settings',NULL,1,'2027-01-15T08:00:14.000000Z','76e50531','{"id":"settings","theme":"dark","created_at":"1970-01-01T00:00:00.000000Z","updated_at":"2027-01-15T08:00:14.000000Z","version":1}',NULL);
INSERT INTO "items" VALUES(14,'books','0000000000000006',NULL,1,'2027-01-15T08:00:15.000000Z','57391df6','{"id":6,"title":"Last","author":"bob","price":0,"tags":[],"created_at":"2027-01-15T08:00:15.000000Z","updated_at":"2027-01-15T08:00:15.000000Z","version":1}',NULL);
CREATE TABLE "items.books.tags.9b317361" (value NOT NULL, id TEXT NOT NULL, PRIMARY KEY (value, id)) WITHOUT ROWID;
INSERT INTO "items.books.tags.9b317361" VALUES('new','0000000000000001');
INSERT INTO "items.books.tags.9b317361" VALUES('new','0000000000000002');
INSERT INTO "items.books.tags.9b317361" VALUES('new','0000000000000003');
INSERT INTO "items.books.tags.9b317361" VALUES('t1','0000000000000001');
INSERT INTO "items.books.tags.9b317361" VALUES('t2','0000000000000002');
INSERT INTO "items.books.tags.9b317361" VALUES('t3','0000000000000003');
CREATE TABLE responses (
    id        BLOB NOT NULL UNIQUE,
    stored_at REAL NOT NULL,
    body      BLOB NOT NULL
) STRICT;
INSERT INTO "responses" VALUES(X'15F1241E0D09B8264A1B0BFB43D1293AD9862B1425C489C82FA86CA75F7106BC',1800000012.0,X'5B2261643833303634336362666339376164386637366561653164633435373534353462366139323761343162353435633564666461303933306433323430633838222C3230302C5B5B22436F6E74656E742D54797065222C226170706C69636174696F6E2F6A736F6E225D2C5B22436F6E74656E742D4C656E677468222C22313630225D2C5B2245546167222C225C223232663363396533306437663833326533356365393634395C22225D2C5B224C6173742D4D6F646966696564222C224672692C203135204A616E20323032372030383A30303A313220474D54225D2C5B2243616368652D436F6E74726F6C222C22707269766174652C206E6F2D6361636865225D2C5B224C6F636174696F6E222C222F6170692F76312F626F6F6B732F35225D5D5D0A7B226964223A352C227469746C65223A225265706561746564222C22617574686F72223A22616461222C227072696365223A302C2274616773223A5B5D2C22637265617465645F6174223A22323032372D30312D31355430383A30303A31322E3030303030305A222C22757064617465645F6174223A22323032372D30312D31355430383A30303A31322E3030303030305A222C2276657273696F6E223A317D');
CREATE TABLE schemas (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    collection  TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    revision    INTEGER NOT NULL,
    fields      TEXT NOT NULL,
    UNIQUE (collection, fingerprint)
) STRICT;
INSERT INTO "schemas" VALUES(1,'authors','e536fc1d',1,'{"name":["string",false,false],"mail":["string",false,true]}');
INSERT INTO "schemas" VALUES(2,'books','57391df6',1,'{"id":["integer",false,false],"title":["string",true,false],"author":["string",true,false],"price":["number",false,false],"tags":["array of string",false,false],"@":{"author":"authors"}}');
INSERT INTO "schemas" VALUES(3,'notes','5084e0b9',1,'{"text":["string",false,false]}');
INSERT INTO "schemas" VALUES(4,'settings','76e50531',1,'{"theme":["string",false,false]}');
INSERT INTO "schemas" VALUES(5,'keys','2-a276d761',2,'{"name":["string",true,false],"scopes":["array of string",true,false],"owners":["array of string",false,false],"expires_at":["time",false,true],"last_used_at":["time",false,true]}');
INSERT INTO "schemas" VALUES(6,'webhooks','5fca4ad8',1,'{"url":["string",true,false],"types":["array of string",false,false],"api_version":["string",false,false],"scopes":["array of string",false,false],"description":["string",false,false],"status":["string",false,false]}');
CREATE TABLE store (
    epoch         TEXT NOT NULL,
    schema_cookie INTEGER NOT NULL DEFAULT 0,  -- SQLite only
    oldest        INTEGER NOT NULL DEFAULT 0,
    moved_to      TEXT NOT NULL DEFAULT ''
) STRICT;
INSERT INTO "store" VALUES('4aae7e9f',28,3,'');
CREATE TABLE subscriptions (
    webhook      TEXT NOT NULL PRIMARY KEY,
    position     INTEGER NOT NULL,
    paused_until REAL NOT NULL DEFAULT 0,
    secrets      TEXT NOT NULL
) STRICT;
INSERT INTO "subscriptions" VALUES('01a21a38-b193-7ae2-b2d8-39b92dc9ccb3',13,0.0,'[["whsec_LuAa+x4ButYX7m2CQjJ4ahSLSNE1hy4oipx5I4YkuA0=",null]]');
CREATE INDEX deliveries_due ON deliveries (webhook, due) WHERE due IS NOT NULL;
CREATE INDEX deliveries_manual ON deliveries (webhook, due) WHERE due IS NOT NULL AND item IS NULL;
CREATE INDEX deliveries_leased ON deliveries (webhook, due) WHERE leased = 1;
CREATE INDEX deliveries_item ON deliveries (webhook, item, id) WHERE state = 'pending' AND item IS NOT NULL;
CREATE INDEX deliveries_log ON deliveries (webhook, id);
CREATE INDEX deliveries_rest ON deliveries (webhook, state, id) WHERE state <> 'delivered';
CREATE INDEX deliveries_event ON deliveries (event);
CREATE UNIQUE INDEX "items.authors.mail.a166b59f" ON items (collection, lower(json_extract(body, '$.mail'))) WHERE collection = 'authors' AND json_extract(body, '$.mail') IS NOT NULL;
CREATE TRIGGER "items.books.tags.9b317361.INSERT" AFTER INSERT ON items WHEN NEW.collection = 'books' BEGIN INSERT INTO "items.books.tags.9b317361" (value, id) SELECT DISTINCT CASE WHEN each0.type IN ('true', 'false') THEN each0.type ELSE each0.atom END, NEW.id FROM json_each(CASE json_type(NEW.body, '$."tags"') WHEN 'array' THEN json_extract(NEW.body, '$."tags"') ELSE json_extract(NEW.body, '$."tags"', '$[0]') END) AS each0 WHERE each0.type NOT IN ('null', 'array', 'object'); END;
CREATE TRIGGER "items.books.tags.9b317361.UPDATE" AFTER UPDATE ON items WHEN NEW.collection = 'books' BEGIN DELETE FROM "items.books.tags.9b317361" WHERE (value, id) IN (SELECT DISTINCT CASE WHEN each0.type IN ('true', 'false') THEN each0.type ELSE each0.atom END, OLD.id FROM json_each(CASE json_type(OLD.body, '$."tags"') WHEN 'array' THEN json_extract(OLD.body, '$."tags"') ELSE json_extract(OLD.body, '$."tags"', '$[0]') END) AS each0 WHERE each0.type NOT IN ('null', 'array', 'object')); INSERT INTO "items.books.tags.9b317361" (value, id) SELECT DISTINCT CASE WHEN each0.type IN ('true', 'false') THEN each0.type ELSE each0.atom END, NEW.id FROM json_each(CASE json_type(NEW.body, '$."tags"') WHEN 'array' THEN json_extract(NEW.body, '$."tags"') ELSE json_extract(NEW.body, '$."tags"', '$[0]') END) AS each0 WHERE each0.type NOT IN ('null', 'array', 'object'); END;
CREATE TRIGGER "items.books.tags.9b317361.DELETE" AFTER DELETE ON items WHEN OLD.collection = 'books' BEGIN DELETE FROM "items.books.tags.9b317361" WHERE (value, id) IN (SELECT DISTINCT CASE WHEN each0.type IN ('true', 'false') THEN each0.type ELSE each0.atom END, OLD.id FROM json_each(CASE json_type(OLD.body, '$."tags"') WHEN 'array' THEN json_extract(OLD.body, '$."tags"') ELSE json_extract(OLD.body, '$."tags"', '$[0]') END) AS each0 WHERE each0.type NOT IN ('null', 'array', 'object')); END;
CREATE INDEX "items.books.price.aab51149" ON items (collection, coalesce(json_extract(body, '$.price'), 0), id) WHERE collection = 'books';
CREATE INDEX "items.books.author.935fdb07" ON items (collection, coalesce(json_extract(body, '$.author'), ''), id) WHERE collection = 'books';
CREATE INDEX "items.notes.owner.b551c9e3" ON items (collection, owner, id) WHERE collection = 'notes';
CREATE INDEX "items.keys.created_at.a5998c29" ON items (collection, coalesce(json_extract(body, '$.created_at'), ''), id) WHERE collection = 'keys';
CREATE INDEX "items.webhooks.created_at.e0066360" ON items (collection, coalesce(json_extract(body, '$.created_at'), ''), id) WHERE collection = 'webhooks';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('schemas',6);
INSERT INTO "sqlite_sequence" VALUES('deliveries',7);
COMMIT;
PRAGMA user_version = 4;
PRAGMA application_id = 1383298123;
PRAGMA schema_version = 28;
