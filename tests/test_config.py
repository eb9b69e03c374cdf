"""Settings: from the environment or typed, checked at the start."""

import importlib.util
import re
from pathlib import Path

import pytest

from restkeeper.cli.misspelt import misspelt_settings
from restkeeper.config import Config, ConfigError, settings
from restkeeper.service import make_service
from tests.live import ROOT


def test_defaults_are_those_of_tests_and_of_serving() -> None:
    """Config() stores in memory; Config.from_env() stores in a file and listens on loopback."""
    assert Config().database_url == "memory://"
    serving = Config.from_env({})
    assert (serving.database_url, serving.host, serving.port) == ("sqlite:///restkeeper.db", "127.0.0.1", 8000)
    environ = {"PORT": "5000", "AUTH": "required"}
    assert Config.from_env(environ).host == "0.0.0.0"  # noqa: S104
    assert Config.from_env(environ | {"HOST": "127.0.0.1"}).host == "127.0.0.1"
    assert Config.from_env({"PORT": "5000"}).host == "127.0.0.1"
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"):  # noqa: S104
        with pytest.raises(ConfigError, match=f"HOST='{host}': AUTH=open lets every caller do everything.*open-to-all"):
            Config.from_env({"HOST": host, "AUTH": "open"})
        assert Config.from_env({"HOST": host, "AUTH": "open-to-all"}).host == host


MESSAGES: list[tuple[dict[str, str], str]] = [
    ({"PAGE_LIMIT": "many"}, "PAGE_LIMIT='many': must be a whole number from 1 to 10000"),
    ({"PAGE_LIMIT": "2000"}, "PAGE_LIMIT=2000: must be at most PAGE_LIMIT_MAX, which is 1000"),
    ({"REQUIRE_IF_MATCH": "maybe"}, "REQUIRE_IF_MATCH='maybe': must be 1 or 0"),
    ({"LOG_FORMAT": "xml"}, "LOG_FORMAT='xml': must be json or text or short or colour"),
    ({"SQLITE_SYNCHRONOUS": "off"}, "SQLITE_SYNCHRONOUS='off': must be full or normal"),
    ({"REDIS_URL": "redis://:p@ss/word@h:1/0"}, "REDIS_URL=(hidden): must be redis://"),
    ({"REDIS_URL": "redis://h:1/0?socket_timeout=x"}, "REDIS_URL=(hidden): must be redis://"),
    ({"METRICS_TOKEN_FILE": "/no/such/file"}, "METRICS_TOKEN_FILE='/no/such/file': cannot be read"),
    ({"ADMIN_KEY": "x" * 23}, "ADMIN_KEY=(hidden): must be at least 24 ASCII characters"),
    ({"JWT_ISSUER": "a"}, "JWT_AUDIENCE='': must be set too, or none of JWT_ISSUER, JWT_AUDIENCE, JWT_JWKS"),
]


def test_the_message_for_a_bad_value_has_key_value_and_range() -> None:
    for environ, message in MESSAGES:
        with pytest.raises(ConfigError) as caught:
            Config.from_env(environ)
        assert message in str(caught.value) and "\n" not in str(caught.value)
    assert Config(jwt_issuer="a", jwt_audience="b", jwt_jwks="c", admin_key="x" * 24, metrics_token="x" * 24)


def test_typed_values_are_checked_too() -> None:
    for wrong in ({"log_format": "xml"}, {"page_limit": True}, {"page_limit": 50, "page_limit_max": 20}):
        with pytest.raises(ConfigError):
            Config(**wrong)  # type: ignore[arg-type]
    assert Config(page_limit=20, page_limit_max=20).page_limit == 20


RANGES = {
    "database_connections": (2, 1000),
    "port": (0, 65535),
    "web_concurrency": (1, 256),
    "page_limit": (1, 10_000),
    "page_limit_max": (1, 10_000),
    "page_bytes": (1, 2**31),
    "max_body": (1, 2**31),
    "max_item": (256, 2**31),
    "trusted_proxies": (0, 16),
    "idempotency_ttl": (60, 366 * 24 * 3600),
    "events_ttl": (60, 366 * 24 * 3600),
}


def test_a_range_includes_its_ends() -> None:
    assert {setting.name for setting in settings() if type(setting.default) is int} == {*RANGES}
    for name, ends in RANGES.items():
        others = {"page_limit": {"page_limit_max": 10_000}, "page_limit_max": {"page_limit": 1}}.get(name, {})
        for end, beyond in zip(ends, (-1, 1), strict=True):
            assert getattr(Config(**others, **{name: end}), name) == end  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match=f"^{name}="):
                Config(**others, **{name: end + beyond})  # type: ignore[arg-type]


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    """NAME_FILE names a file with the secret, which is not in any repr. The store's address may have a password."""
    for name, secret in (("metrics_token", "s3cret" * 4), ("database_url", "postgresql://shop:s3cret@db/shop")):
        (tmp_path / "file").write_text(f"{secret}\n")
        config = Config.from_env({f"{name.upper()}_FILE": str(tmp_path / "file")})
        assert getattr(config, name) == secret and "s3cret" not in repr(config)
    (tmp_path / "key").write_text(f"{'x' * 24}\n")
    file = {"ADMIN_KEY_FILE": str(tmp_path / "key")}
    for same in ("x" * 24, ""):
        assert Config.from_env(file | {"ADMIN_KEY": same}).admin_key == "x" * 24
    with pytest.raises(ConfigError) as caught:
        Config.from_env(file | {"ADMIN_KEY": "y" * 24})
    message = f"ADMIN_KEY=(hidden): ADMIN_KEY_FILE='{tmp_path}/key' has another value; set only one of the two"
    assert str(caught.value) == message


def test_flags_accept_the_usual_words() -> None:
    for words, value in ((("1", "true", "YES", "on"), True), (("0", "False", "no", "off", ""), False)):
        assert {Config.from_env({"DOCS": each}).docs for each in words} == {value}


def test_the_page_has_every_setting() -> None:
    """docs/configuration.md is up to date; if not, run: python docs/configuration.py."""
    spec = importlib.util.spec_from_file_location("configuration", ROOT / "docs/configuration.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == module.PAGE.read_text(encoding="utf-8")
    assert all(setting.metadata["about"] for setting in settings())


def test_a_misspelt_setting_is_named() -> None:
    """The line names a similar setting, if there is one; a variable with a prefix of our settings gets a line."""
    for name, meant in {
        "PAGE_LIMT": "PAGE_LIMIT",
        "RATELIMIT": "RATE_LIMIT",
        "WEBHOOK_WORKERS": "WEBHOOK_WORKER",
        "DATABASE_URI": "DATABASE_URL",
        "CORS_ORIGIN": "CORS_ORIGINS",
        "METRICS_TOKEN_FIL": "METRICS_TOKEN_FILE",
        "IDEMPOTENCY_TTL_SECONDS": "IDEMPOTENCY_TTL",
        "JWT_SECRET": "",
        "WEBHOOK_SIGNING_ALGORITHM": "",
    }.items():
        message = f"{name} is no setting; did you mean {meant}?" if meant else f"{name} is no setting"
        assert misspelt_settings(["HOME", name, "PATH"]) == [message]
    names = [each.name.upper() for each in settings()]
    assert misspelt_settings([*USUAL.split(), *names, "ADMIN_KEY_FILE"]) == []


# Variables of shells, of platforms (Heroku, Railway, Render, Fly, Cloud Run, Kubernetes), of databases and of tools.
USUAL = """
    HOME HOST HOSTNAME HOSTTYPE PATH PORT SHELL CHOST DOCKER_HOST GHOST LOG_DIR LOG_FILE LOG_PATH MAX_JOBS MAX_TIME
    PAGER PAGE_SIZE POST DATABASE_HOST DATABASE_NAME DATABASE_PASSWORD DATABASE_PORT DATABASE_PRIVATE_URL
    DATABASE_PUBLIC_URL DATABASE_URL_RO DATABASE_USER PGDATABASE PGHOST PGPASSWORD PGPORT PGUSER POSTGRES_URL
    REDIS_DB REDIS_HOST REDIS_PASSWORD REDIS_PORT REDIS_TLS_URL AWS_ACCESS_KEY_ID GUNICORN_CMD_ARGS KUBERNETES_PORT
    KUBERNETES_SERVICE_HOST AUTH_SERVICE_HOST AUTH_PORT WEBHOOK_SERVICE_HOST WEBHOOK_PORT_8080_TCP_ADDR ADMIN_EMAIL
    API_KEY AUTH0_DOMAIN AUTH_TOKEN BASE_URL CORS_ALLOW_CREDENTIALS DOCS_DIR EVENTS_URL METRICS_PORT SECRET_KEY
"""


def test_an_unknown_kind_of_store_is_refused() -> None:
    allowed = "memory:// or sqlite:///FILE (four slashes for an absolute path, no ?parameters) or postgresql://USER:"
    for url in (
        *("", "x", "mysql://x", "memory", "memory://x", "sqlite:///", "sqlite://a.db", "sqlite:///:memory:"),
        *("sqlite:///file:a", "sqlite:///a.db?mode=ro"),
    ):
        with pytest.raises(ConfigError, match=re.escape(f"DATABASE_URL='{url}': must be {allowed}")):
            make_service(Config(database_url=url), (), ())
