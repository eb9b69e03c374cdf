PRAGMA application_id = 1383298123;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE counters (
    collection   TEXT NOT NULL,
    shard        INTEGER NOT NULL DEFAULT 0,
    items        INTEGER NOT NULL DEFAULT 0,
    changes      INTEGER NOT NULL DEFAULT 0,
    revision     INTEGER NOT NULL DEFAULT 1,
    converted_at TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (collection, shard)
) STRICT, WITHOUT ROWID;
INSERT INTO "counters" VALUES('_credentials',0,1,2,1,'');
INSERT INTO "counters" VALUES('keys',0,1,2,1,'');
INSERT INTO "counters" VALUES('products',0,1,4,1,'');
INSERT INTO "counters" VALUES('users',0,1,1,1,'');
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
INSERT INTO "deliveries" VALUES(1,'01a2293e-d683-748e-b771-6a5b968b01de',1,'products/01a2293e-d69f-7460-9df7-872fa1d5a24d','pending',1.80000006853103613852e+09,1,0,1,1800000000.0,500,0.0,'');
INSERT INTO "deliveries" VALUES(2,'01a2293e-d683-748e-b771-6a5b968b01de',2,'products/01a2293e-d69f-7460-9df7-872fa1d5a24d','pending',NULL,0,0,0,NULL,NULL,NULL,NULL);
INSERT INTO "deliveries" VALUES(3,'01a2293e-d683-748e-b771-6a5b968b01de',4,'products/01a2293e-d6b9-72ff-b789-d5e20bd41cbd','pending',1.8000000636473875046e+09,1,0,1,1800000000.0,500,0.0,'');
INSERT INTO "deliveries" VALUES(4,'01a2293e-d683-748e-b771-6a5b968b01de',5,'products/01a2293e-d6b9-72ff-b789-d5e20bd41cbd','pending',NULL,0,0,0,NULL,NULL,NULL,NULL);
CREATE TABLE events (
    position       INTEGER PRIMARY KEY,  -- SQLite only
    origin         TEXT NOT NULL DEFAULT '',
    type           TEXT NOT NULL,
    collection     TEXT NOT NULL,
    item           TEXT NOT NULL,
    owner          TEXT,
    at             TEXT NOT NULL,
    data           TEXT NOT NULL,
    fingerprint    TEXT NOT NULL DEFAULT '',
    removed_fields TEXT,
    former         TEXT
) STRICT;
INSERT INTO "events" VALUES(1,'b9d43db9','product.created','products','01a2293e-d69f-7460-9df7-872fa1d5a24d',NULL,'2027-01-15T08:00:00.000000Z','{"id":"01a2293e-d69f-7460-9df7-872fa1d5a24d","name":"Lamp ☃","description":null,"sku":"L-1","price":12.5,"currency":"USD","stock":0,"tags":["light"],"attributes":{},"status":"active","created_at":"2027-01-15T08:00:00.000000Z","updated_at":"2027-01-15T08:00:00.000000Z","version":1}','f43223af',NULL,NULL);
INSERT INTO "events" VALUES(2,'b9d43db9','product.updated','products','01a2293e-d69f-7460-9df7-872fa1d5a24d',NULL,'2027-01-15T08:00:00.000000Z','{"id":"01a2293e-d69f-7460-9df7-872fa1d5a24d","name":"Lamp ☃","description":null,"sku":"L-1","price":9.95,"currency":"USD","stock":3,"tags":["light"],"attributes":{},"status":"active","created_at":"2027-01-15T08:00:00.000000Z","updated_at":"2027-01-15T08:00:00.000000Z","version":2}','f43223af',NULL,NULL);
INSERT INTO "events" VALUES(3,'b9d43db9','user.created','users','01a2293e-d6b2-7da4-8374-eb631fa95fb4',NULL,'2027-01-15T08:00:00.000000Z','{"id":"01a2293e-d6b2-7da4-8374-eb631fa95fb4","email":"Ada@example.org","name":null,"status":"active","created_at":"2027-01-15T08:00:00.000000Z","updated_at":"2027-01-15T08:00:00.000000Z","version":1}','469ac2a6',NULL,NULL);
INSERT INTO "events" VALUES(4,'b9d43db9','product.created','products','01a2293e-d6b9-72ff-b789-d5e20bd41cbd',NULL,'2027-01-15T08:00:00.000000Z','{"id":"01a2293e-d6b9-72ff-b789-d5e20bd41cbd","name":"gone","description":null,"sku":null,"price":null,"currency":"USD","stock":0,"tags":[],"attributes":{},"status":"active","created_at":"2027-01-15T08:00:00.000000Z","updated_at":"2027-01-15T08:00:00.000000Z","version":1}','f43223af',NULL,NULL);
INSERT INTO "events" VALUES(5,'b9d43db9','product.deleted','products','01a2293e-d6b9-72ff-b789-d5e20bd41cbd',NULL,'2027-01-15T08:00:00.000000Z','{"id":"01a2293e-d6b9-72ff-b789-d5e20bd41cbd","name":"gone","description":null,"sku":null,"price":null,"currency":"USD","stock":0,"tags":[],"attributes":{},"status":"active","created_at":"2027-01-15T08:00:00.000000Z","updated_at":"2027-01-15T08:00:00.000000Z","version":1}','f43223af',NULL,NULL);
CREATE TABLE items (
    _position      INTEGER PRIMARY KEY,  -- SQLite only
    collection     TEXT NOT NULL,
    id             TEXT NOT NULL,
    owner          TEXT,
    version        INTEGER NOT NULL,
    updated_at     TEXT NOT NULL,
    fingerprint    TEXT NOT NULL,
    body           TEXT NOT NULL,
    removed_fields TEXT,
    UNIQUE (collection, id)  -- SQLite only
) STRICT;
INSERT INTO "items" VALUES(1,'keys','62d3399092d4b87e',NULL,1,'2027-01-15T08:00:00.000000Z','a276d761','{"id":"62d3399092d4b87e","name":"reader","scopes":["products:read"],"owners":[],"expires_at":null,"last_used_at":"2027-01-15T08:00:00.000000Z","created_at":"2027-01-15T08:00:00.000000Z","updated_at":"2027-01-15T08:00:00.000000Z","version":1}',NULL);
INSERT INTO "items" VALUES(2,'_credentials','62d3399092d4b87e',NULL,1,'2027-01-15T08:00:00.000000Z','','["3193236358b0d7db5835e9b8f91e999f333f960bf18d85a4c26ec713e8227fb2",["products:read"],null,[]]',NULL);
INSERT INTO "items" VALUES(3,'webhooks','01a2293e-d683-748e-b771-6a5b968b01de',NULL,1,'2027-01-15T08:00:00.000000Z','5fca4ad8','{"id":"01a2293e-d683-748e-b771-6a5b968b01de","url":"https://hooks.example.org/","types":["product.created","product.updated","product.deleted"],"api_version":"v1","scopes":[],"description":"","status":"active","created_at":"2027-01-15T08:00:00.000000Z","updated_at":"2027-01-15T08:00:00.000000Z","version":1}',NULL);
INSERT INTO "items" VALUES(4,'products','01a2293e-d69f-7460-9df7-872fa1d5a24d',NULL,2,'2027-01-15T08:00:00.000000Z','f43223af','{"id":"01a2293e-d69f-7460-9df7-872fa1d5a24d","name":"Lamp ☃","description":null,"sku":"L-1","price":9.95,"currency":"USD","stock":3,"tags":["light"],"attributes":{},"status":"active","created_at":"2027-01-15T08:00:00.000000Z","updated_at":"2027-01-15T08:00:00.000000Z","version":2}',NULL);
INSERT INTO "items" VALUES(5,'users','01a2293e-d6b2-7da4-8374-eb631fa95fb4',NULL,1,'2027-01-15T08:00:00.000000Z','469ac2a6','{"id":"01a2293e-d6b2-7da4-8374-eb631fa95fb4","email":"Ada@example.org","name":null,"status":"active","created_at":"2027-01-15T08:00:00.000000Z","updated_at":"2027-01-15T08:00:00.000000Z","version":1}',NULL);
CREATE TABLE responses (
    id        BLOB NOT NULL UNIQUE,
    stored_at REAL NOT NULL,
    body      BLOB NOT NULL
) STRICT;
INSERT INTO "responses" VALUES(X'A7B55C281919F2B326C24E6AEFEBAD06ADB82D329F4B73181558B90ABDF1AC22',1800000000.0,X'5B2232363235343533663765623061376662393638313366616261366236333662646432643538373063623533373366323335353539633931353932383831356435222C3230302C5B5B22436F6E74656E742D54797065222C226170706C69636174696F6E2F6A736F6E225D2C5B22436F6E74656E742D4C656E677468222C22323833225D2C5B2245546167222C225C226333626438633561376338636132313963643664356336365C22225D2C5B224C6173742D4D6F646966696564222C224672692C203135204A616E20323032372030383A30303A303020474D54225D2C5B2243616368652D436F6E74726F6C222C22707269766174652C206E6F2D6361636865225D2C5B224C6F636174696F6E222C222F70726F64756374732F30316132323933652D643639662D373436302D396466372D383732666131643561323464225D5D5D0A7B226964223A2230316132323933652D643639662D373436302D396466372D383732666131643561323464222C226E616D65223A224C616D7020E29883222C226465736372697074696F6E223A6E756C6C2C22736B75223A224C2D31222C227072696365223A31322E352C2263757272656E6379223A22555344222C2273746F636B223A302C2274616773223A5B226C69676874225D2C2261747472696275746573223A7B7D2C22737461747573223A22616374697665222C22637265617465645F6174223A22323032372D30312D31355430383A30303A30302E3030303030305A222C22757064617465645F6174223A22323032372D30312D31355430383A30303A30302E3030303030305A222C2276657273696F6E223A317D');
CREATE TABLE schemas (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    collection  TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    revision    INTEGER NOT NULL,
    fields      TEXT NOT NULL,
    UNIQUE (collection, fingerprint)
) STRICT;
INSERT INTO "schemas" VALUES(1,'products','f43223af',1,'{"name":["string",true,false],"description":["string",false,true],"sku":["string",false,true],"price":["number",false,true],"currency":["string",false,false],"stock":["integer",false,false],"tags":["array of string",false,false],"attributes":["object",false,false],"status":["string",false,false]}');
INSERT INTO "schemas" VALUES(2,'users','469ac2a6',1,'{"email":["string",true,false],"name":["string",false,true],"status":["string",false,false]}');
INSERT INTO "schemas" VALUES(3,'keys','a276d761',1,'{"name":["string",true,false],"scopes":["array of string",true,false],"owners":["array of string",false,false],"expires_at":["time",false,true],"last_used_at":["time",false,true]}');
INSERT INTO "schemas" VALUES(4,'webhooks','5fca4ad8',1,'{"url":["string",true,false],"types":["array of string",false,false],"api_version":["string",false,false],"scopes":["array of string",false,false],"description":["string",false,false],"status":["string",false,false]}');
CREATE TABLE store (
    epoch         TEXT NOT NULL,
    schema_cookie INTEGER NOT NULL DEFAULT 0,  -- SQLite only
    oldest        INTEGER NOT NULL DEFAULT 0,
    moved_to      TEXT NOT NULL DEFAULT '',
    layout_4      TEXT
) STRICT;
INSERT INTO "store" VALUES('b9d43db9',29,1,'',NULL);
CREATE TABLE subscriptions (
    webhook      TEXT NOT NULL PRIMARY KEY,
    position     INTEGER NOT NULL DEFAULT 0,
    paused_until REAL NOT NULL DEFAULT 0,
    secrets      TEXT NOT NULL
) STRICT;
INSERT INTO "subscriptions" VALUES('01a2293e-d683-748e-b771-6a5b968b01de',5,0.0,'[["whsec_oeJ4798jNh/WMvzGqQLqePpVDvAz85nVJ2nhK/A/KZg=",null]]');
CREATE INDEX deliveries_due ON deliveries (webhook, due) WHERE due IS NOT NULL;
CREATE INDEX deliveries_manual ON deliveries (webhook, due) WHERE due IS NOT NULL AND item IS NULL;
CREATE INDEX deliveries_leased ON deliveries (webhook, due) WHERE leased = 1;
CREATE INDEX deliveries_item ON deliveries (webhook, item, id) WHERE state = 'pending' AND item IS NOT NULL;
CREATE INDEX deliveries_log ON deliveries (webhook, id);
CREATE INDEX deliveries_rest ON deliveries (webhook, state, id) WHERE state <> 'delivered';
CREATE INDEX deliveries_event ON deliveries (event);
CREATE UNIQUE INDEX "items.products.sku.1f61a7ab" ON items (collection, json_extract(body, '$.sku')) WHERE collection = 'products' AND json_extract(body, '$.sku') IS NOT NULL;
CREATE INDEX "items.products.sku.ec1e731a" ON items (collection, coalesce(json_extract(body, '$.sku'), ''), id) WHERE collection = 'products';
CREATE INDEX "items.products.name.e1e5fecf" ON items (collection, coalesce(json_extract(body, '$.name'), ''), id) WHERE collection = 'products';
CREATE INDEX "items.products.price.3dcf71ec" ON items (collection, coalesce(json_extract(body, '$.price'), -9e999), id) WHERE collection = 'products';
CREATE INDEX "items.products.status.1f4fe084" ON items (collection, coalesce(json_extract(body, '$.status'), CAST(x'616374697665' AS TEXT)), id) WHERE collection = 'products';
CREATE INDEX "items.products.created_at.760c5d22" ON items (collection, coalesce(json_extract(body, '$.created_at'), ''), id) WHERE collection = 'products';
CREATE INDEX "items.products.updated_at.187cda41" ON items (collection, updated_at, id) WHERE collection = 'products';
CREATE UNIQUE INDEX "items.users.email.9b2df20d" ON items (collection, lower(json_extract(body, '$.email'))) WHERE collection = 'users';
CREATE INDEX "items.users.email.19720ab6" ON items (collection, coalesce(lower(json_extract(body, '$.email')), ''), id) WHERE collection = 'users';
CREATE INDEX "items.users.status.c9592443" ON items (collection, coalesce(json_extract(body, '$.status'), CAST(x'616374697665' AS TEXT)), id) WHERE collection = 'users';
CREATE INDEX "items.users.created_at.5b5ea3ef" ON items (collection, coalesce(json_extract(body, '$.created_at'), ''), id) WHERE collection = 'users';
CREATE INDEX "items.users.updated_at.29a18eb2" ON items (collection, updated_at, id) WHERE collection = 'users';
CREATE INDEX "items.keys.created_at.a5998c29" ON items (collection, coalesce(json_extract(body, '$.created_at'), ''), id) WHERE collection = 'keys';
CREATE INDEX "items.webhooks.created_at.e0066360" ON items (collection, coalesce(json_extract(body, '$.created_at'), ''), id) WHERE collection = 'webhooks';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('schemas',4);
INSERT INTO "sqlite_sequence" VALUES('deliveries',4);
COMMIT;
