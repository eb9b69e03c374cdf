"""The features: what a service can do without, in the order in which they take part. Each is a module or a package."""

from restkeeper.feature import Feature

FEATURES = (
    Feature("metrics", f"{__name__}.metrics:install", settings=("metrics_token",)),
    Feature("cors", f"{__name__}.cors:install", settings=("cors_origins",)),
    Feature(
        "keys",
        f"{__name__}.keys:install",
        settings=("admin_key",),
        items=(f"{__name__}.keys:KEYS",),
        records=(f"{__name__}.keys:CREDENTIALS",),
        cli={"keys": (f"{__name__}.keys.command:keys", "Create, list, revoke and rotate API keys.")},
    ),
    Feature("jwt", f"{__name__}.jwt:install", settings=("jwt_jwks", "jwt_owner")),
    Feature("roles", f"{__name__}.roles:install", settings=("jwt_roles",)),
    Feature("limits", f"{__name__}.limits:install", settings=("rate_limit", "rate_limit_write", "redis_url")),
    Feature("versions", f"{__name__}.versions:install"),
    Feature("ownership", f"{__name__}.ownership:install"),
    Feature("references", f"{__name__}.references:install"),
    Feature("idempotency", f"{__name__}.idempotency:install", settings=("idempotency",)),
    Feature("dialects", f"{__name__}.dialects:install"),
    Feature("events", f"{__name__}.events:install"),
    Feature("batch", f"{__name__}.batch:install"),
    Feature(
        "webhooks",
        f"{__name__}.webhooks:install",
        settings=("webhook_timeout", "webhook_retries", "webhook_allow_private"),
        items=(f"{__name__}.webhooks.handlers:WEBHOOKS",),
        needs=("events",),
        cli={"deliver": (f"{__name__}.webhooks.command:deliver", "Send the deliveries of webhooks.")},
    ),
    Feature(
        "transfer",
        cli={
            "import": (f"{__name__}.transfer.importing:import_items", "Add the items of FILE to the collection NAME."),
            "export": (f"{__name__}.transfer.exporting:export_items", "Write the items of the collection NAME."),
            "backup": (f"{__name__}.transfer.stores:backup", "Write a complete copy of the store to the new FILE."),
            "restore": (f"{__name__}.transfer.stores:restore", "Replace the store by a copy of the backup FILE."),
            "copy": (f"{__name__}.transfer.stores:copy", "Move the store SOURCE to the store TARGET."),
            "rename": (f"{__name__}.transfer.renaming:rename", "Give what is stored of the collection OLD to NEW."),
            "forget": (f"{__name__}.transfer.renaming:forget", "Delete all that the store has of the collection NAME."),
        },
    ),
    Feature("health", f"{__name__}.health:install"),
    Feature("pages", f"{__name__}.pages:install"),
    Feature("browse", f"{__name__}.browse:install"),
    Feature("harness", settings=("harness", "harness_ports"), serve=f"{__name__}.harness:application_of", usual=False),
    Feature(
        "openapi",
        f"{__name__}.openapi:install",
        cli={"contract": (f"{__name__}.openapi.contract:contract", "Compare the API with what was promised.")},
    ),
)
"""The features of Restkeeper, in their order: `create_app(…, features=(*FEATURES, AUDIT))` adds one of your own."""

SERVED_FILE = f"{__name__}.files:served_file"  # makes the application of a JSON file

# What a server does for features, by their names (see `ServerPart`): beside them, as it is for these alone.
SERVER_PARTS = {
    "limits": f"{__name__}.limits:SERVER",
    "webhooks": f"{__name__}.webhooks.deliverer:SERVER",
    "openapi": f"{__name__}.openapi.document:SERVER",
}
