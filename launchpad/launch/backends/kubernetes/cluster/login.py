"""Login: which cluster is meant, and how to get in, as the package `kubernetes` knows."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any

from launchpad.errors import LaunchError


def log_in() -> tuple[Any, str]:
    """A client of the package `kubernetes`, and the namespace that is meant where none is named.

    Raises:
      LaunchError: the package is missing, or there is no cluster that is known.
    """
    client, namespace = _client(_load())
    if not client.configuration.verify_ssl:
        _hush()
    _share_trust(client.rest_client.pool_manager, client.configuration)
    return client, namespace


def _load() -> Any:
    try:
        from kubernetes import config
    except ImportError as error:
        raise LaunchError(
            f"launch type 'kubernetes' needs the package kubernetes, which cannot be imported here"
            f" ({error}): pip install 'launchpad[kubernetes]'"
        ) from error
    return config


def _client(config: Any) -> tuple[Any, str]:
    from kubernetes import client

    configuration = client.Configuration()
    configuration.connection_pool_maxsize = 1000
    try:
        config.load_kube_config(client_configuration=configuration)
        _, context = config.list_kube_config_contexts()
        namespace = context["context"].get("namespace", "default")
    except config.ConfigException as not_here:
        try:
            config.load_incluster_config(client_configuration=configuration)
            with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace") as file:
                namespace = file.read().strip()
        except (config.ConfigException, OSError):
            raise LaunchError(
                f"no Kubernetes cluster is known here: {not_here}. Set KUBECONFIG, or see whether"
                " `kubectl get pods` works"
            ) from not_here
    return client.ApiClient(configuration), namespace


class _Trust(ssl.SSLContext):
    """Shared by connections of many threads: nothing of it may change any more (python/cpython#134698)."""

    def set_alpn_protocols(self, alpn_protocols: Iterable[str]) -> None:
        """Each connection would set them anew, to HTTP/1.1, which is what is spoken without."""


def _share_trust(pool: Any, configuration: Any) -> None:
    """Has all connections use one context; each would otherwise read certificates from files by itself."""
    trust = _Trust(ssl.PROTOCOL_TLS_CLIENT)
    if not configuration.verify_ssl:
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    elif configuration.ssl_ca_cert:
        trust.load_verify_locations(configuration.ssl_ca_cert)
    else:
        trust.load_default_certs()
    if configuration.cert_file:
        trust.load_cert_chain(configuration.cert_file, configuration.key_file)
    for name in ("ca_certs", "ca_cert_data", "cert_file", "key_file"):
        pool.connection_pool_kw.pop(name, None)
    pool.connection_pool_kw["ssl_context"] = trust


def _hush() -> None:
    """Who wrote insecure-skip-tls-verify into a kubeconfig knows it; not at each request once more."""
    import urllib3

    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
