"""All kinds of hostile tries: a module each."""

from __future__ import annotations

from campaigns.attack import (
    files,
    fio,
    folders,
    kits,
    names,
    namespaces,
    requests,
    serve,
    servers,
    settings,
)

KINDS = (
    *(settings.KIND, kits.KIND, files.KIND, fio.KIND, names.KIND, requests.KIND, folders.KIND),
    *(serve.KIND, servers.KIND, namespaces.KIND),
)
