from restkeeper import Index, Resource
from schemas.tool import ToolSchema
from storage.upgrades import TOOLS

RESOURCE = Resource("tools", "tool", ToolSchema, indexes=(Index("category"),), search=("name",), upgrades=TOOLS)
