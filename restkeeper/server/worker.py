"""The gunicorn worker: gunicorn's gevent worker with the exchange of this package."""

import gc

from gunicorn.errors import AppImportError
from gunicorn.workers.ggevent import GeventWorker

from restkeeper.server.exchange import Exchange, patch_with

UNLIMITED = {"limit_request_line": 8190, "limit_request_field_size": 8190, "limit_request_fields": 32768}  # 0 means it
NO_PRELOAD = "preload_app (--preload) is not supported: each worker creates the application"


class Worker(Exchange, GeventWorker):  # type: ignore[misc]
    """Serves the application in a process of gunicorn's."""

    def patch(self) -> None:
        """As gunicorn does."""
        patch_with(super().patch)

    def init_process(self) -> None:
        """Store each setting as an attribute, which is quicker to find."""
        gc.enable()  # which `settings` has disabled in the master
        settings = {name: setting.get() for name, setting in self.cfg.settings.items()}
        self.cfg.__dict__.update(settings | {name: settings[name] or most for name, most in UNLIMITED.items()})
        self.begin()
        super().init_process()

    def load_wsgi(self) -> None:
        """Also end the master if the application cannot be created: every new worker would fail too.

        An application that the master has created (`preload_app`) is refused: its locks, which were created before
        gevent's patches, would block a worker.
        """
        if self.cfg.preload_app:
            raise AppImportError(NO_PRELOAD)
        try:
            super().load_wsgi()
        except SystemExit as error:
            raise AppImportError(error.code) from None
