"""Posts with integer ids, and what refers to them."""

from typing import Any

from marshmallow import Schema, fields

from restkeeper import Application, Config, IntegerReference, Items, ItemSchema, Resource, Text
from tests.shop import create_app as create_shop


class PostSchema(ItemSchema):
    """A post."""

    title = Text(0, 50, load_default="")


class CommentSchema(ItemSchema):
    """A comment on a post, and on others."""

    post = IntegerReference("posts", required=True, on_delete="cascade")
    others = fields.List(IntegerReference("posts"), load_default=list)
    text = Text(0, 50, load_default="")


class LineSchema(Schema):
    """A part of a list."""

    post = IntegerReference("posts", required=True)


class ListSchema(ItemSchema):
    """A list of posts."""

    first = fields.Nested(LineSchema, allow_none=True, load_default=None)
    lines = fields.List(fields.Nested(LineSchema, allow_none=True), load_default=list)
    best = IntegerReference("posts", on_delete="null", allow_none=True, load_default=None)


POSTS = Resource("posts", "post", PostSchema, ids="integer")
COMMENTS = Resource("comments", "comment", CommentSchema, ids="integer")
LISTS = Resource("lists", "list", ListSchema)


@POSTS.action("copy")
def copy(post: dict[str, Any], items: Items) -> None:
    """Create a copy with a comment, and read, change and delete by integers."""
    made = items.create("posts", {"title": f"copy of {post['id']}"})
    items.create("comments", {"post": made["id"], "text": items.read("posts", made["id"])["title"]})
    items.change("posts", made["id"], lambda found: {**found, "title": found["title"].upper()})
    items.delete("posts", items.create("posts", {"title": "gone"})["id"])


@POSTS.before("create")
def name(post: dict[str, Any], before: None) -> dict[str, Any]:
    """A post is called by its id if it has no title."""
    return {**post, "title": post["title"] or f"post {post['id']}"}


def create_app(config: Config | None = None, **options: Any) -> Application:
    """The service with posts."""
    return create_shop(config, [POSTS, COMMENTS, LISTS], **options)
