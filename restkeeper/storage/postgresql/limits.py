"""The limits of connections: how long what may wait, and how many."""

ANSWER_SECONDS = 5.0  # for which a statement may work, and a caller may wait for a connection
LOCK_SECONDS = 4.5  # for which a statement may wait for a lock: less, as the error is another one
CLOSED_SECONDS = 1.0  # for which the server may not have noticed that a connection is closed
IDLE_SECONDS = 5.0  # between two statements of a transaction
TRANSACTION_SECONDS = 15.0  # of a whole transaction (PostgreSQL 17 and later), if the server has no other limit
SILENT_SECONDS = 6.0  # after which a server that is silent is left: more, so that it can end a statement itself
OPEN_SECONDS = 0.5  # for which a use waits for the pool, before it looks whether connections can be opened
REOPEN_SECONDS = 0.5  # between two attempts to open the store
RENEW_SECONDS = 2.0  # between two times that all connections are replaced, as the server only reads
LOG_SECONDS = 60.0  # between two lines of a process about the same failure
LONGEST_LIFE_SECONDS = 300.0  # of a connection: a new one notices that a newer program has migrated the store
LONGEST_IDLE_SECONDS = 300.0  # of a connection that is not needed
MIGRATION_LOCK_SECONDS = 0.15  # for which a migration waits for a lock, and requests behind it
MIGRATION_PAUSE_SECONDS = 1.0  # after that: enough for the requests that have waited
MIGRATION_SECONDS = 60.0  # for which a start tries to migrate beside transactions that have the locks
OTHERS_SECONDS = 0.1  # between two questions whether another program still migrates or builds indexes
QUIET_SECONDS = 3.0  # after which a start logs what it waits for
