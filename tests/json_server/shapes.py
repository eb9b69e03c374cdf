"""Files by the shapes that people have, each small; most are what a tool, an editor or a hand has left."""

DEEP = '{"n": ' * 40 + "0" + "}" * 40

SHAPES: dict[str, str | bytes] = {
    "an empty object": "{}",
    "only a schema": '{"$schema": "./node_modules/json-server/schema.json"}\n',
    "single items": '{"home": {"hero": {"title": "Hi"}}, "about": {"text": "Us"}, "empty": {}}',
    "empty collections beside others": '{"todos": [], "done": [], "lists": [{"id": 1, "name": "Shop"}]}',
    "of the readme": """{
  "posts": [{ "id": "1", "title": "a title", "views": 100 }, { "id": "2", "title": "another title", "views": 200 }],
  "comments": [{ "id": "1", "text": "about 1", "postId": "1" }, { "id": "2", "text": "about 2", "postId": "1" }],
  "profile": { "name": "typicode" }
}
""",
    "line ends of Windows": '{\r\n  "cars": [\r\n    { "id": 1, "make": "Fiat" },\r\n    { "id": 2 }\r\n  ]\r\n}\r\n',
    "a byte order mark": b'\xef\xbb\xbf{"cars": [{"id": 1, "make": "Fiat"}, {"id": 2, "make": "Opel"}]}',
    "ids that are texts of numbers": '{"users": [{"id": "1", "name": "A"}, {"id": "02", "name": "B"}, {"id": "10"}]}',
    "without ids": '{"notes": [{"text": "one"}, {"text": "two"}]}',
    "without some ids": '{"notes": [{"id": 1, "text": "one"}, {"text": "two"}, {"id": 7, "text": "three"}]}',
    "without ids but of another name": '{"users": [{"_id": "5f1", "name": "Ann"}, {"_id": "5f2", "name": "Ben"}]}',
    "both names of ids": '{"users": [{"_id": "5f1", "id": 1, "name": "Ann"}, {"_id": "5f2", "id": 2, "name": "Ben"}]}',
    "UUIDs": """{"orders": [
  {"id": "3f2b8c1e-7a4d-4a51-9d0e-1c2b3a4d5e6f", "total": 10.5},
  {"id": "a1b2c3d4-0000-4000-8000-00000000000f", "total": 7}
]}""",
    "short random ids": '{"todos": [{"id": "c6d9", "done": false}, {"id": "zT4-_x", "done": true}, {"id": "-x"}]}',
    "ids of both kinds": '{"todos": [{"id": 1, "text": "a"}, {"id": "b-7", "text": "b"}, {"id": 3, "text": "c"}]}',
    "ids that come twice": '{"todos": [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}, {"id": 1, "text": "c"}]}',
    "ids with other characters": '{"tags": [{"id": "c++", "n": 1}, {"id": "a b", "n": 2}, {"id": "été?", "n": 3}]}',
    "long ids": '{"logs": [{"id": "%s", "level": "info"}, {"id": "x", "level": "warn"}]}' % ("ab" * 100),
    "times as ids": '{"events": [{"id": 1700000000123, "name": "in"}, {"id": 1700000000456, "name": "out"}]}',
    "negative and zero ids": '{"floors": [{"id": -1, "name": "cellar"}, {"id": 0, "name": "ground"}]}',
    "names of the service": '{"events": [{"id": 1}], "keys": [{"id": 2}], "docs": [{"id": 3}], "webhooks": {"a": 1}}',
    "names with dashes and spaces": '{"blog-posts": [{"id": 1, "t": "x"}], "my posts": [{"id": 2}], "a.b": []}',
    "names with capitals": '{"Users": [{"id": 1, "Name": "Ann"}], "users": [{"id": 2}], "userProfiles": [{"id": 3}]}',
    "names of letters": '{"größen": [{"id": 1, "maß": 5}], "用户": [{"id": 1, "名字": "李"}, {"id": 2, "名字": "王"}]}',
    "names that begin with others": '{"1st": [{"id": 1, "a": 1}], "_private": [{"id": 1, "a": 2}], "v1": {"x": 1}}',
    "nested": """{"products": [
  {"id": 1, "title": "Desk", "dim": {"w": 10, "h": {"min": 1, "max": 2}}, "variants": [{"sku": "a", "stock": [1, 2]}]},
  {"id": 2, "title": "Lamp", "dim": null, "variants": []}
]}""",
    "deep": f'{{"trees": [{{"id": 1, "root": {DEEP}}}, {{"id": 2, "root": {{}}}}]}}',
    "mixed types": """{"rows": [
  {"id": 1, "v": 5}, {"id": 2, "v": "five"}, {"id": 3, "v": [5]}, {"id": 4, "v": null}, {"id": 5}
]}""",
    "null everywhere": '{"rows": [{"id": 1, "a": null, "b": null}, {"id": 2, "a": null, "b": "x"}], "c": {"a": null}}',
    "other fields in each": """{"rows": [
  {"id": 1, "a": 1}, {"id": 2, "b": 2}, {"id": 3, "c-d": 3, "e f": 4, "": 5, "g.h": 6}
]}""",
    "dates": """{"tasks": [
  {"id": 1, "due": "2024-02-29", "at": "2024-01-02T03:04:05Z", "us": "02/29/2024"},
  {"id": 2, "due": "2023-12-01", "at": "2024-01-02T03:04:05.678+02:00", "us": "soon"}
]}""",
    "numbers": """{"rows": [
  {"id": 1, "big": 12345678901234567890, "f": 1.50, "e": 1E3, "neg": -0.0},
  {"id": 2, "big": 98765432109876543210, "f": 2.25, "e": 2e-7, "neg": -7}
]}""",
    "texts": r"""{"rows": [
  {"id": 1, "t": "line\nbreak \"quoted\" \\ \/ \u00e9\ud83d\ude00", "html": "<b>x</b> & y"},
  {"id": 2, "t": "", "html": "tab\t"}, {"id": 3, "t": " spaces ", "html": "%20+"}
]}""",
    "references": """{
  "users": [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Ben"}],
  "posts": [{"id": 1, "userId": 1, "title": "One"}, {"id": 2, "userId": 9, "title": "Two"}],
  "comments": [{"id": 1, "post_id": 1, "author": {"userId": 2}}, {"id": 2, "post_id": null, "author": null}],
  "likes": [{"id": 1, "postID": 1, "user": 2}, {"id": 2, "postID": "1", "user": "2"}]
}""",
    "arrays of fields": '{"films": [{"id": 1, "genres": ["a", "b"], "cast": [1]}, {"id": 2, "genres": []}]}',
    "values at the top": '{"version": 3, "ok": true, "none": null, "name": "x", "posts": [{"id": 1, "a": "b"}]}',
    "values in arrays at the top": '{"tags": ["a", "b"], "sizes": [1, 2], "posts": [{"id": 1, "a": "b"}]}',
    "fields of queries": """{"rows": [
  {"id": 1, "limit": 5, "sort": "a", "q": "x", "_page": 2}, {"id": 2, "limit": 6, "sort": "b"}
]}""",
}

# What is read here where json-server 1 answers otherwise, by the first column of the table in docs/json-server.md: the
# ids, the status of what is no list, or None for a file with which 1 does not start.
OTHERWISE: dict[str, dict[str, str | int | None]] = {
    "order": {
        "line ends of Windows: /cars?_sort=make": "2 1",
        "ids that are texts of numbers: /users?_sort=name": "10 1 02",
        "short random ids: /todos?_sort=done": "-x c6d9 zT4-_x",
        "mixed types: /rows?_sort=v": "3 4 5 1 2",
        "null everywhere: /rows?_sort=b": "1 2",
        "other fields in each: /rows?_sort=a": "2 3 1",
        "texts: /rows?_sort=t": "2 3 1",
        "references: /comments?_sort=post_id": "2 1",
    },
    "an id that comes twice": {
        "ids that come twice: /todos": "1 2",
        "ids that come twice: /todos?_sort=text": "1 2",
        "ids that come twice: /todos?_page=1&_per_page=2": "1 2",
    },
    "`tags=sweet`": {"mixed types: /rows?v=5": "1 3"},
    "`id:in=1,2` (texts)": {"references: /likes?postID=1": "1 2"},
    "`limit=5`": {"fields of queries: /rows?limit=5": "1 2"},
    "numbers": {
        "numbers: /rows": "1 2",
        "numbers: /rows/1": 200,
        "numbers: /rows?big=12345678901234567890": "1",
        "numbers: /rows?_sort=big": "1 2",
        "numbers: /rows?_page=1&_per_page=2": "1 2",
    },
    "values at the top": {f"values at the top: /{name}": 404 for name in ("version", "ok", "none", "name")},
    "a byte order mark, values in an array": {"a byte order mark": None, "values in arrays at the top": None},
}
