"""Requests that a seed makes for the content of start.json, in the words of json-server 0.17 or 1."""

import json
from collections.abc import Mapping
from itertools import count
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

Content = Mapping[str, Any]  # the items of each collection, and the single item

CHILDREN = {"posts": ("comments", "postId"), "users": ("articles", "userId")}
UNIQUE = {"posts": "title", "comments": "body", "users": "name", "articles": "headline"}
COUNTED = {"posts": "views", "comments": "votes", "users": "age", "articles": "words"}
NAMES = [*UNIQUE, "users", "articles"]  # those with texts as ids are more frequent: 1 knows no others


class Request(NamedTuple):
    """A request."""

    method: str
    path: str
    body: Any = None

    def __str__(self) -> str:
        return " ".join([self.method, self.path, *([] if self.body is None else [json.dumps(self.body)])])


class Maker:
    """Makes one request after another for what there is at the moment."""

    def __init__(self, version: str, seed: int) -> None:
        self.version, self.random, self.number = version, Random(seed), 0  # noqa: S311
        self._turns = count()

    def read(self, content: Content) -> Request:
        """A request that reads."""
        choose, old = self.random.choice, self.version == "0.17"
        name = choose(NAMES)
        items = content[name]
        text, number, single = UNIQUE[name], COUNTED[name], choose(items or [{}])
        value, low = single.get(text, "none"), self.random.randrange(400)
        word = str(value).lower().split(" ")[0]  # of several, the package looks for the whole text
        part, page, size = str(value)[1:4].lower(), self.random.randint(1, 3), self.random.randint(1, 3)
        parent = choose([*CHILDREN])
        child, key = CHILDREN[parent]
        parents, query = content[parent], dict[str, Any]()
        path = f"/{name}"
        relations = ({"_embed": child} if name == parent else {}), ({"_expand" if old else "_embed": parent[:-1]})
        relation = relations[0] if name == parent else relations[1] if name == child else {}
        filters: list[dict[str, Any]] = [{text: value}, {number: single.get(number)}, {}]
        orders: list[dict[str, Any]] = [{"_sort": text}, {}, {}]
        if old:
            filters += [{f"{number}_gte": low}, {f"{number}_gte": 2, f"{number}_lte": low}, {f"{text}_like": part}]
            filters += [{"id_ne": single.get("id", 1)}, {text: [value, "other"]}, {"q": word}]
            filters += [{f"{number}_ne": 50}]
            orders += [{"_sort": text, "_order": "desc"}, {"_sort": f"{text},id", "_order": "desc,asc"}]
            slices: list[dict[str, Any]] = [{"_page": page, "_limit": size}, {"_start": page - 1, "_end": page + size}]
            slices += [{"_start": page, "_limit": size}, {"_limit": size}, {}, {}, {}]
            odd = [f"/{parent}/{choose(['77', 'none'])}/{child}", "/posts?note=null", "/posts?tags=sweet", "/db"]
            odd += ["/posts?views_like=0", "/Posts", "/posts?_sort=note", "/posts?_sort=price&_order=desc", "/none"]
            odd += ["/posts?colour=red", "/users?joined_gte=2024-01-01", "/posts?author.name=ann", "/posts?q=oslo"]
            odd += ["/posts?note_ne=long", "/posts?title_like=^.", "/posts?published=true"]
        else:
            filters += [{f"{number}:gt": low}, {f"{number}:gte": 2, f"{number}:lte": low}, {f"{text}:contains": part}]
            filters += [{f"{number}:lt": low}, {f"{text}:ne": value}, {f"{number}:in": "50,120,9"}]
            filters += [{f"{text}:startsWith": str(value)[:2]}, {f"{text}:endsWith": str(value)[-3:]}, {"id": "none"}]
            filters += [{"_where": json.dumps({"or": [{number: {"gt": low}}, {text: {"eq": value}}]})}]
            orders += [{"_sort": f"-{text}"}, {"_sort": f"{number},{text}"}]
            slices = [{"_page": page, "_per_page": size}, {"_page": 1, "_per_page": 20}, {}, {}, {}]
            odd = ["/users?id=7", "/posts?note=null", "/posts?tags=sweet", "/posts?_sort=note"]
            odd += ["/posts?author.name=ann", "/none", "/posts?price:gt=4.5", "/posts?colour=red"]
            odd += ["/users?joined:gte=2024-01-01", "/Posts"]
            odd += ["/posts?note:ne=long", "/posts?published=true", "/posts?title:contains=", "/db"]
        odd += ["/posts?_embed=comments&_sort=title", "/labels", "/profile", "/profile/", f"{path}/", "/posts?_=1"]
        kind = self.random.random()
        if kind < 0.2:
            return Request("GET", odd[next(self._turns) % len(odd)])
        if kind < 0.4:
            path += "/" + quote(str(choose([single.get("id", 1), single.get("id", 1), "none", 999])), safe="")
            query = choose([relation, {}])
        elif kind < 0.55 and old and parents:
            path = f"/{parent}/{quote(str(choose(parents)['id']))}/{child}"
            query = choose([{"_sort": UNIQUE[child]}, {"_limit": size}, {}, {}])
        else:
            query = {**choose(filters), **choose(orders), **choose(slices), **choose([relation, {}])}
            query = {name: value for name, value in query.items() if value is not None}
        return Request("GET", f"{path}?{urlencode(query, doseq=True)}" if query else path)

    def write(self, content: Content) -> Request:
        """A request that writes."""
        choose, old = self.random.choice, self.version == "0.17"
        self.number += 1
        name = choose([*NAMES, "labels"])
        fields = {"name": f"made {self.number}", "size": self.number % 7, "extra": choose([None, [1, {"a": 2}], True])}
        if name in UNIQUE:
            fields |= {UNIQUE[name]: f"Made {self.number}", COUNTED[name]: self.number % 5 * 30}
        parent = next((each for each, (child, _) in CHILDREN.items() if child == name), "")
        if parent:
            lost = "lost" if old else choose(["lost", None])  # once one is null, 0.17 can delete nothing
            fields[CHILDREN[parent][1]] = choose([choose(content[parent] or [{"id": lost}])["id"], lost])
        single = choose(content[name] or [{"id": "none"}])
        one = f"/{name}/{quote(str(choose([single['id']] * 7 + ['none'])), safe='')}"
        given = {"id": choose([self.number + 1000, f"n-{self.number}", None, "", single["id"]])}
        kind = self.random.random()
        if kind < 0.04:
            return Request(choose(["PUT", "PATCH"] + ["POST"] * old), "/profile", {"name": f"name {self.number}"})
        if kind < 0.08:
            others = [Request("POST", "/none", {"a": 1}), Request("PUT", "/posts", {"a": 1})]
            return choose([*others, Request("POST", "/users", "{"), Request("DELETE", "/profile")])
        if kind < 0.2:
            parent = choose([*CHILDREN])
            id = quote(str(choose([*(each["id"] for each in content[parent]), "none"])), safe="")
            child = CHILDREN[parent][0]
            body = {UNIQUE[child]: f"Made {self.number}", COUNTED[child]: self.number}
            return Request("POST", f"/{parent}/{id}/{child}", body)
        if kind < 0.45:
            return Request("POST", f"/{name}", fields)
        if kind < 0.55:
            return Request("POST", f"/{name}", {**given, **fields})
        if kind < 0.68:
            return Request("PUT", one, choose([fields, {**given, **fields}]))
        if kind < 0.85:
            patch = dict(self.random.sample([*fields.items()], 2))
            return Request("PATCH", one, choose([patch, {**patch, **given}, {"author": {"city": "Wien"}}, {}]))
        child = CHILDREN.get(name, ("",))[0]
        return Request("DELETE", one + (f"?_dependent={child}" if child and choose([True, False]) else ""))
